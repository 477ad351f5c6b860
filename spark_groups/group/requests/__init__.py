"""The client's requests: one file for each kind, each class a `channels.Requester`."""
