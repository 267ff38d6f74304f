"""The one error that user input can cause, always in three parts."""


class InputError(ValueError):
    """Something the user gave cannot be used.

    The message has three lines: what was received (with file and line where there is one), what is
    expected, and what to do. The commands print it and exit with code 1.
    """

    def __init__(self, received: str, expected: str, remedy: str):
        super().__init__(f"Received: {received}\nExpected: {expected}\nTo do: {remedy}")
        self.received, self.expected, self.remedy = received, expected, remedy
