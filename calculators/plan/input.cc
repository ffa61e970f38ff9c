#include "calculators/plan/input.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace plumbline::plan {
namespace {

absl::Status Wrong(const std::string& what, double found, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": expected ", expected, ", found ", found));
}

// NaN fails the same comparison, because it is neither above nor below any number.
absl::Status Positive(const std::string& what, double value) {
  if (!(value > 0) || !std::isfinite(value)) return Wrong(what, value, "a number above 0");
  return absl::OkStatus();
}

absl::Status Whole(const std::string& what, double value) {
  if (!(value >= 1) || value != std::floor(value) || !(value < 1e9))
    return Wrong(what, value, "a whole number from 1 on");
  return absl::OkStatus();
}

absl::Status CheckModel(const ModelShape& model) {
  if (auto s = Positive("parameters", model.parameters); !s.ok()) return s;
  if (!(model.active >= 0) || !(model.active <= model.parameters))
    return Wrong("active", model.active, "at most the number of parameters");
  if (auto s = Whole("layers", static_cast<double>(model.layers)); !s.ok()) return s;
  if (model.hidden < 0 || model.heads < 0)
    return absl::InvalidArgumentError("hidden and heads: expected numbers from 0 on");
  return Whole("sequence", static_cast<double>(model.sequence));
}

absl::Status CheckCluster(const Cluster& c) {
  if (auto s = Whole("gpus", c.gpus); !s.ok()) return s;
  if (auto s = Whole("domain", c.domain); !s.ok()) return s;
  if (auto s = Positive("peak", c.peak); !s.ok()) return s;
  if (auto s = Positive("memory", c.memory); !s.ok()) return s;
  if (auto s = Positive("link", c.link); !s.ok()) return s;
  if (auto s = Positive("domain-link", c.domain_link); !s.ok()) return s;
  if (!(c.mfu > 0) || !(c.mfu <= 1)) return Wrong("mfu", c.mfu, "above 0 and at most 1");
  return absl::OkStatus();
}

}  // namespace

const char* ShardingName(Sharding sharding) {
  constexpr const char* kNames[] = {"none", "zero1", "zero2", "zero3"};
  return kNames[static_cast<int>(sharding)];
}

absl::Status CheckPlan(const Input& in) {
  if (auto s = CheckModel(in.model); !s.ok()) return s;
  if (auto s = CheckCluster(in.cluster); !s.ok()) return s;
  const Layout& l = in.layout;
  for (const auto& [what, value] : {std::pair{"tensor", l.tensor},
                                    {"pipeline", l.stages},
                                    {"virtual", l.virtual_stages},
                                    {"micro-batch", l.micro_sequences}}) {
    if (auto s = Whole(what, value); !s.ok()) return s;
  }
  for (const auto& [what, value] : {std::pair{"batch", l.batch_tokens},
                                    {"weight-bytes", l.weight_bytes},
                                    {"gradient-bytes", l.gradient_bytes},
                                    {"gathers", l.gathers},
                                    {"reductions", l.reductions}}) {
    if (auto s = Positive(what, value); !s.ok()) return s;
  }
  if (!(l.optimizer_bytes >= 0) || !std::isfinite(l.optimizer_bytes))
    return Wrong("optimizer-bytes", l.optimizer_bytes, "a number from 0 on");
  if (std::fmod(in.cluster.gpus, l.tensor * l.stages) != 0)
    return Wrong("gpus", in.cluster.gpus,
                 absl::StrCat("a multiple of tensor x pipeline = ", l.tensor * l.stages));
  if (l.stages * l.virtual_stages > static_cast<double>(in.model.layers))
    return Wrong("pipeline x virtual", l.stages * l.virtual_stages,
                 absl::StrCat("at most the ", in.model.layers, " layers"));
  return absl::OkStatus();
}

}  // namespace plumbline::plan
