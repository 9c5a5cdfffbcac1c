"""Requests transfers between four accounts and keeps them going, until it is killed; prints each one's number.

Usage: bank_worker.py STORE_URL FIRST_NUMBER
"""

import random
import sys
from contextlib import suppress

from headrace.eventsourcing import ProcessRunner, Refused, Repository, open_store
from tests.property.bank import accounts, transfers

url, first = sys.argv[1], int(sys.argv[2])
store = open_store(url)
bank, chance = Repository(store), random.Random(first)
with ProcessRunner(store, transfers.transferring):
    for number in range(first, first + 10_000):
        source, target = chance.sample(("ann", "bob", "cy", "dan"), 2)
        name = f"t{number}"
        request = accounts.RequestTransfer(name, source, target, chance.randrange(1, 6_000))
        bank.handle(accounts.transfer, name, request, command_id=f"request {name}")
        if number % 7 == 0:
            with suppress(Refused):
                bank.handle(accounts.account, "dan", accounts.CloseAccount(), command_id=f"close {name}")
        print(number, flush=True)
