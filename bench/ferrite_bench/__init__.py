"""The benchmarks: experiments on Ferrite and other engines, each repeatable with one command."""
