"""The client's requests: one file for each kind, each class a `client.channels.Requester`."""
