#include "analysis/product/held_contracts.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "analysis/sums/sums.h"
#include "base/real.h"

namespace plumbline::analysis {
namespace {

absl::Status Unusable(const sums::Contract& contract, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("the contract of ", contract.name, " cannot describe a product: ", why));
}

absl::StatusOr<HeldContract> Usable(sums::Contract contract) {
  if (!sums::HasProducts(contract.kind))
    return Unusable(
        contract, absl::StrCat("expected kind dot or gemm, found ", sums::KindName(contract.kind)));
  if (contract.model.empty())
    return Unusable(contract, absl::StrCat("its verdict is ", sums::VerdictName(contract.verdict),
                                           "; expected verified"));
  absl::StatusOr<sums::SumModel> model = sums::ParseModel(contract.model);
  if (!model.ok()) return Unusable(contract, std::string(model.status().message()));
  if (!sums::HasProducts(model->kind) || model->tree.leaves() != contract.n)
    return Unusable(contract, "its replay.model is another function's");
  return HeldContract{std::move(contract), *std::move(model)};
}

}  // namespace

absl::StatusOr<HeldContracts> HeldContracts::Parse(const std::string& text) {
  absl::StatusOr<std::vector<sums::Contract>> contracts = sums::ParseContracts(text, "contract");
  if (!contracts.ok()) return contracts.status();
  HeldContracts all;
  for (sums::Contract& contract : *contracts) {
    absl::StatusOr<HeldContract> held = Usable(std::move(contract));
    if (!held.ok()) return held.status();
    all.held_.push_back(*std::move(held));
  }
  return all;
}

const HeldContract* HeldContracts::For(const MatmulCase& c) const {
  for (const HeldContract& held : held_) {
    if (held.contract.n == c.inner && held.model.input == c.a_dtype &&
        held.model.input == c.b_dtype && held.model.output == c.d_dtype)
      return &held;
  }
  return nullptr;
}

HeldMatches ReplayContract(const HeldContract& held, const MatmulCase& c) {
  HeldMatches of;
  sums::Replay replay(held.model);
  std::vector<double> a(static_cast<size_t>(c.inner)), b(a.size());
  for (int i = 0; i < c.samples; ++i) {
    bool finite = true;
    for (int k = 0; k < c.inner; ++k) {
      const auto at = static_cast<size_t>(k);
      a[at] = c.A(i, k);
      b[at] = c.B(i, k);
      finite = finite && std::isfinite(a[at]) && std::isfinite(b[at]);
    }
    if (!finite) continue;
    ++of.samples;
    const double y = replay.Run(a, b), d = c.d[static_cast<size_t>(i)];
    if (SameResult(y, d)) {
      ++of.matches;
    } else if (of.first_miss < 0) {
      of.first_miss = i;
      of.held = y;
      of.found = d;
    }
  }
  return of;
}

}  // namespace plumbline::analysis
