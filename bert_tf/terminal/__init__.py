"""What a command shows while it runs: bars, log lines, tables of scores. All on standard error."""
