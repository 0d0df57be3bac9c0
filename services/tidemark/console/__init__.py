"""What the commands share: answers and errors, questions, arguments, the client of the admin API."""
