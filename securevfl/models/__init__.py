"""The halves of a split model: bottom models at the clients, a server model at the server."""
