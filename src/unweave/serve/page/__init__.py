"""The service for people: pages made by the server, without a script."""
