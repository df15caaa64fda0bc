"""PATE: teachers vote on a student's labels, with noise, and the analysis says what that cost."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import syft as sy
from syft.frameworks.torch.dp import pate

hook = sy.TorchHook(torch)
hospitals = [sy.VirtualWorker(hook, id=f"hospital{i}") for i in range(10)]
torch.manual_seed(0)
np.random.seed(0)

digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
num_teachers, num_examples, num_labels, epsilon, delta = 40, 150, 10, 0.2, 1e-5
student_images, student_labels = images[:num_examples], labels[:num_examples]
private_images, private_labels = images[num_examples:], labels[num_examples:]


def train(data, target):
    model = nn.Linear(64, num_labels)
    opt = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(25):
        opt.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()
        opt.step()
    return model


parts = np.array_split(np.random.permutation(len(private_images)), num_teachers)
preds = np.zeros((num_teachers, num_examples), dtype=np.int64)
for teacher, part in enumerate(parts):
    preds[teacher] = train(private_images[part], private_labels[part])(student_images).argmax(1).numpy()

# The noisy maximum of the votes.
new_labels = []
for an_image in preds.T:
    label_counts = np.bincount(an_image, minlength=num_labels).astype(float)
    label_counts += np.random.laplace(0, 1 / epsilon, num_labels)
    new_labels.append(int(np.argmax(label_counts)))
new_labels = torch.tensor(new_labels)
assert (new_labels == student_labels).float().mean() > 0.6

indices = np.arange(num_examples)
data_dep_eps, data_ind_eps = pate.perform_analysis(
    teacher_preds=preds, indices=indices, noise_eps=epsilon, delta=delta
)
print("data independent epsilon:", data_ind_eps)
print("data dependent epsilon:", data_dep_eps)
assert 0 < data_dep_eps <= data_ind_eps

# Teachers who agree cost less.
agreeing = preds.copy()
agreeing[:, :100] = 0
cheaper, _ = pate.perform_analysis(teacher_preds=agreeing, indices=indices, noise_eps=epsilon, delta=delta)
assert cheaper < data_dep_eps

# The torch twin gives the same numbers.
dep, ind = pate.perform_analysis_torch(
    torch.tensor(preds), torch.tensor(indices), noise_eps=epsilon, delta=delta
)
assert abs(float(ind) - data_ind_eps) < 1e-3 and abs(float(dep) - data_dep_eps) < 1e-2

student = train(student_images, new_labels)
accuracy = (student(private_images).argmax(1) == private_labels).float().mean().item()
print("student's accuracy", accuracy)
assert accuracy > 0.5
