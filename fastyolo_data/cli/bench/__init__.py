"""`fastyolo bench`: our loader and others, each in its own process, in interleaved passes.

| File | Job |
|---|---|
| command.py | arguments, the order of the steps, exit codes |
| demo.py | generated demo set; an existing set repeated |
| dataset.py | the private copy of the data that every contender gets |
| adapters.py | one small class per loader: yields batches |
| worker.py | the child process: obeys one JSON line, answers one JSON line |
| client.py | the parent's end of a child process |
| measure.py | starts, passes and GPU simulation of one round, interleaved |
| memory.py | proportional set size of a process tree |
| checks.py | are the batches of the contenders comparable? |
| stats.py | median, MAD |
| machine.py | what a result file says about the machine |
| report.py, chart.py | text table, JSON file; PNG chart |

The parent imports no loader. `worker.py` imports this package and nothing heavy, so that a contender's process holds
only what that contender needs.
"""
