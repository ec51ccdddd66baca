"""What is special to each page of results: how its files are read, and what it says of them."""
