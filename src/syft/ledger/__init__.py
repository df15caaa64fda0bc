"""What was spent of privacy, on disk: one kind of file, one class that opens it, one way to be crash-safe and to lock.

Imports `identity` for whole files, and `exceptions`. It knows neither events nor mechanisms: those are texts here.

    file       tables of SQLite, sealed entry by entry
    mark       the last entry, noted at the file
    ledger     `Ledger`: transactions on a file that is what it was
    account    `Account`: the ledger of one training or one budget, whose entries say what was spent in all

Who keeps what in it: `dp.worker_budgets` the releases of a worker's users, `dp.accounting` a budget of its own
(`BudgetFile`), `dp.dpsgd` the steps of a private training, `federated.charges` the sums of private rounds.
"""

from syft.ledger.account import Account as Account
from syft.ledger.ledger import Ledger as Ledger
from syft.ledger.ledger import journal_path as journal_path
