"""Historical path of translations of plans: `plan.add_translation(PlanTranslatorTorchscript)`."""
