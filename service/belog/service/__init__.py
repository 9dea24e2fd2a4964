"""The program: commands, configuration and network services."""
