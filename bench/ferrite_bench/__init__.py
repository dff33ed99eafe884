"""The bench lab: experiments on Ferrite and its peers, each repeatable with one command."""
