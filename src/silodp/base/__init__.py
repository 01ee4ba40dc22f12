"""What knows nothing of silodp's subject: errors, text, files, arrays, progress."""
