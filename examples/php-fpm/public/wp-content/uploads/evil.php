<?php echo 'this must not run';
