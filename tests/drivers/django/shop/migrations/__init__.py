"""The application's migrations, as `makemigrations` writes them."""
