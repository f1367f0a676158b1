"""The halves of a split model: polynomial networks at the clients, a centre at the server."""
