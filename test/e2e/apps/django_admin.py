"""Nothing but settings: the admin that comes with Django, its users and its groups.

DATABASE is a file for SQLite, or a URL of PostgreSQL."""

import os
import sys
from urllib.parse import urlsplit

import django
from django.conf import settings

DATABASE = os.environ["DATABASE"]
if DATABASE.startswith("postgres"):
    url = urlsplit(DATABASE)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": url.hostname,
        "PORT": url.port,
        "USER": url.username,
        "NAME": url.path[1:],
    }
else:
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE}

settings.configure(
    DEBUG=True,
    SECRET_KEY="of a test",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": database},
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "django.contrib.messages",
        "django.contrib.staticfiles",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    STATIC_URL="/static/",
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()

from django.contrib import admin  # noqa: E402
from django.core.management import call_command, execute_from_command_line  # noqa: E402
from django.urls import path  # noqa: E402

urlpatterns = [path("admin/", admin.site.urls)]

if __name__ == "__main__":
    call_command("migrate", verbosity=0)
    from django.contrib.auth.models import User

    for name in ("alice", "bob"):
        User.objects.create_superuser(name, f"{name}@example.com", "password")
    address = f"127.0.0.1:{os.environ['PORT']}"
    execute_from_command_line([sys.argv[0], "runserver", "--noreload", address])
