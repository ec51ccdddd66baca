"""What a request does to a graph: what remains, whose prediction can change. Uses models, request and below."""
