import { Command } from 'commander';
import { defaultOutbox } from '../../config/shape-hub.ts';
import { outboxSql, triggerSql } from '../../outbox/outbox-sql.ts';
import type { Output } from '../terminal.ts';

interface SqlFlags {
  readonly outbox: string;
  readonly writer: readonly string[];
  readonly reader?: string;
  readonly table?: string;
  readonly topic?: string;
  readonly also: readonly string[];
  readonly private?: true;
  readonly type: string;
}

/** `hubgate outbox`: what a database needs so that its transactions publish. */
export function outboxCommand(output: Output): Command {
  const outbox = new Command('outbox').description('publish in the transactions of PostgreSQL');
  outbox.addCommand(sqlCommand(output));
  return outbox;
}

function sqlCommand(output: Output): Command {
  const several = (value: string, before: readonly string[]): readonly string[] => [
    ...before,
    value,
  ];
  return new Command('sql')
    .description('print the SQL for an outbox, or for a trigger that announces the rows of a table')
    .option('--outbox <name>', 'the table of the outbox', `public.${defaultOutbox.table}`)
    .option('--writer <role>', 'a role that inserts rows; may be repeated', several, [])
    .option('--reader <role>', 'the role of the gateway')
    .option('--table <name>', 'a table whose rows are announced: the SQL is that of its trigger')
    .option('--topic <template>', 'the topic of a row, with columns in braces: /books/{id}')
    .option('--also <template>', 'a further topic of each row; may be repeated', several, [])
    .option('--private', 'announce to subscribers with a token for the topic only')
    .option('--type <name>', 'the event type', 'change')
    .action((flags: SqlFlags, command: Command) => {
      const { table, topic, also, writer, reader, type } = flags;
      if (table === undefined) {
        if (topic !== undefined || also.length > 0) command.error('error: --topic needs --table');
        const tables = { table: flags.outbox, writers: writer, reader: reader ?? null };
        output.result(outboxSql(tables).trimEnd());
        return;
      }
      if (topic === undefined) command.error('error: --table needs --topic, such as /books/{id}');
      else {
        output.result(
          triggerSql({
            table,
            topics: [topic, ...also],
            private: flags.private === true,
            type: type === '' ? null : type,
            outbox: flags.outbox,
          }).trimEnd(),
        );
      }
    });
}
