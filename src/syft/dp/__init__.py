"""Differential privacy: what an analysis, a training run or a single released number tells about one person.

Modules, in the order they import each other:

    releasable      figures that depend on the data, and say so
    pate            PATE with Laplace noise: the moments accountant, as documented since 2017
    smooth_noise    noise as wide as a smooth sensitivity, drawn exactly, and what publishing with it costs
    gnmax           PATE with Gaussian noise: Rényi bounds, Confident-GNMax, a data-dependent epsilon to publish
    noise           integer noise from AES-CTR streams: discrete Laplace and Gaussian, Bernoulli(exp(-x))
    mechanisms      numbers that may leave: sums, means, histograms, quantiles, best choices
    audit           a statistical lower bound on the epsilon that a mechanism really has
    events          noise of a kind, as plain records
    composition     what releases cost that users choose by answers: the rule of all budgets
    accounting      events composed by `dp-accounting` (extra `dp`), budgets that are kept in a file
    recurrent       RNN, LSTM, GRU and their cells step by step, where torch's fused kernels do not do
    gradient_factors  gradients of each example, kept as what they are made of: norms and weighted sums
    layer_rules     how the gradients of a layer follow from its input and the gradient of its output
    ruled_pass      rules for a whole model, run for each example by itself
    per_sample      one gradient per example
    batch_rows      batches that are made row by row, so that no row can have a part in another
    poisson_loader  batches in which every row is with the same probability
    private_models  models and optimizers that cannot be trained privately, and BatchNorm's replacement
    training_state  what was spent on one training, in all of its runs
    dpsgd           private training: clipping, noise, Poisson sampling, `make_private`
    own_loop        private training in the loop that people write for plain torch
    correlated_noise  noise that is correlated from step to step: trees and bands
    ftrl            private training without random batches: DP-FTRL, `make_private_ftrl`
    client_updates  clipped updates of clients, and what their sums were charged as
    client_noise    what workers do with their own updates, in masked rounds
    federated       privacy of whole clients in federated training: noise at the server, or at the clients
    worker_budgets  the book of a data owner: limits per user and data set, charged durably
    provenance      which tensors on a worker have rows that depend on one record each
    places          where numbers lie among others, compared exactly
    released        answers that know how much noise they have
    grouped         counts, sums and means by group, with bounds on what a person contributes
    release_mechanisms  the statistics that `worker.release` gives, and what each costs
    release         `worker.release`, `worker.set_budget`, `worker.budget`
    private_programs  which models may be trained beside private data: operations of a list
    release_training  `train_privately`: DP-SGD where the data is, charged to its budgets

Nothing is imported here: `pate` needs neither torch.func nor `dp-accounting`.
"""

from syft.core.lazy import submodules_on_demand as _on_demand

__getattr__ = _on_demand("syft.dp")
