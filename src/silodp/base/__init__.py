"""General parts, without silodp's subject: errors, text, files, arrays, progress."""
