#include "analysis/sums/candidates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "analysis/sums/node_view.h"
#include "analysis/sums/probes.h"

namespace plumbline::sums {
namespace {

constexpr RoundingMode kAdderModes[] = {RoundingMode::kNearestEven, RoundingMode::kNearestAway,
                                        RoundingMode::kTowardZero, RoundingMode::kDown,
                                        RoundingMode::kUp};

// How additions of two values round. The alignment is relative to the node's precision.
struct AdderModel {
  RoundingMode mode;
  std::optional<Alignment> aligned;
};

std::string PrecisionText(const std::vector<int>& precisions) {
  std::map<int, int> counts;
  for (const int p : precisions) ++counts[p];
  std::string text;
  for (auto it = counts.rbegin(); it != counts.rend(); ++it) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", it->first, " bits at ", it->second,
                    it->second == 1 ? " node" : " nodes");
  }
  return text;
}

// Returns up to six nodes of two children, spread over the tree. Returns the root only if there is
// no other.
std::vector<int> AdderNodes(const SummationTree& tree) {
  std::vector<int> all;
  for (int i = tree.leaves(); i < tree.root(); ++i) {
    if (tree.node(i).children.size() == 2) all.push_back(i);
  }
  if (all.empty() && tree.node(tree.root()).children.size() == 2) return {tree.root()};
  std::vector<int> some;
  constexpr size_t kMost = 6;
  const size_t count = std::min(all.size(), kMost);
  for (size_t k = 0; k < count; ++k) {
    some.push_back(all[k * (all.size() - 1) / std::max<size_t>(count - 1, 1)]);
  }
  return some;
}

// Tests whether every addition of two values rounds like the one that was measured. Three steps of
// the table distinguish all modes. If some addition rounds differently, sets *odd to a text about
// the first.
absl::Status EveryAdder(Prober* prober, const SummationTree& tree,
                        const std::vector<int>& precisions, const RoundingTable& expected,
                        std::string* odd) {
  const ProbeUnit scale = UnitOf(prober->target());
  const std::vector<int> parents = tree.Parents();
  prober->Fill(0);
  for (int i = tree.leaves(); i < tree.root() && odd->empty(); ++i) {
    const int p = precisions[static_cast<size_t>(i - tree.leaves())];
    if (tree.node(i).children.size() != 2 || p > scale.room) continue;
    const NodeView view(tree, parents, i);
    const double big = std::ldexp(scale.unit, p);
    const double steps[3][3] = {{big, 1, expected.above[1]},
                                {big, 1.5, expected.above[2]},
                                {-big, -1.5, expected.below[2]}};
    for (const auto& [value, step, kept] : steps) {
      const auto y = view.Kept(prober, value, step * scale.unit);
      if (!y.ok()) return y.status();
      if (*y == kept * scale.unit) continue;
      *odd = absl::StrCat("additions do not round in the same way: the one of ", tree.SizeOf(i),
                          " terms from ", tree.FirstOf(i), " makes ", *y / scale.unit, " of ", step,
                          " next to 2^", p, ", others ", kept);
      break;
    }
  }
  return absl::OkStatus();
}

std::vector<AdderModel> AddersLike(const RoundingTable& table, int precision, int guard_bits) {
  std::vector<AdderModel> adders;
  for (const RoundingMode mode : kAdderModes) {
    if (TableOf(precision, mode, {}) == table) adders.push_back({mode, {}});
  }
  for (const int extra : {-1, 0, 1, 2, 3}) {
    if (guard_bits >= 0 && extra > guard_bits) continue;
    for (const bool floor : {false, true}) {
      for (const RoundingMode mode : kAdderModes) {
        const Alignment aligned{precision + extra, floor};
        if (TableOf(precision, mode, aligned) == table) adders.push_back({mode, aligned});
      }
    }
  }
  return adders;
}

// Runs T2 and T4 over the nodes of two children.
absl::StatusOr<std::vector<AdderModel>> Adders(Prober* prober, const SummationTree& tree,
                                               const std::vector<int>& precisions,
                                               std::vector<TestResult>* tests, std::string* odd) {
  const std::vector<int> nodes = AdderNodes(tree);
  if (nodes.empty()) return std::vector<AdderModel>{{RoundingMode::kNearestEven, {}}};
  std::optional<RoundingTable> seen;
  std::string others;
  int precision = 0;
  int node_seen = 0;
  for (const int node : nodes) {
    const int p = precisions[static_cast<size_t>(node - tree.leaves())];
    if (p > UnitOf(prober->target()).room) continue;  // wider than the probes can measure
    const auto table = RoundingAt(prober, tree, node, p);
    if (!table.ok()) return table.status();
    if (!seen) {
      seen = *table;
      precision = p;
      node_seen = node;
    } else if (!(*table == *seen)) {
      others = absl::StrCat("; another node: ", TableText(*table));
    }
  }
  if (!seen) return std::vector<AdderModel>{{RoundingMode::kNearestEven, {}}};
  if (absl::Status s = EveryAdder(prober, tree, precisions, *seen, odd); !s.ok()) return s;
  const bool nearest = seen->above[3] == 4;
  const auto guard = GuardBits(prober, tree, node_seen, precision, nearest);
  if (!guard.ok()) return guard.status();
  std::vector<AdderModel> adders = AddersLike(*seen, precision, *guard);
  const bool sticky = *guard < 0;
  std::string name = "none of the known adders";
  if (!adders.empty()) {
    name = adders[0].aligned ? "addends aligned and cut first" : RoundingName(adders[0].mode);
  }
  tests->push_back({"T2", "rounding", absl::StrCat(name, " (", TableText(*seen), ")", others)});
  tests->push_back({"T4", "guard bits",
                    sticky ? "all bits below the last are used (sticky)"
                           : absl::StrCat(*guard, " bits below a tie or the last bit are used")});
  if (adders.empty()) adders.push_back({RoundingMode::kNearestEven, {}});
  if (sticky && !adders[0].aligned) adders.resize(1);
  return adders;
}

// Runs T4 on nodes that add several values at once.
absl::StatusOr<std::optional<Alignment>> Blocks(Prober* prober, const SummationTree& tree,
                                                std::vector<TestResult>* tests) {
  for (int i = tree.root(); i >= tree.leaves(); --i) {
    if (tree.node(i).children.size() < 3) continue;
    const auto bits = BlockAlignment(prober, tree, i);
    if (!bits.ok()) return bits.status();
    std::string text = "exact, as far as observed";
    if (bits->fraction_bits >= 0) {
      text = absl::StrCat(bits->fraction_bits, " fraction bits below the largest, cut ",
                          bits->floor ? "down" : "towards zero");
    }
    tests->push_back({"T4", "blocks", text});
    if (bits->fraction_bits < 0) return std::optional<Alignment>();
    return std::optional<Alignment>({bits->fraction_bits, bits->floor});
  }
  return std::optional<Alignment>();
}

std::string InputsText(const InputBits& bits, const Target& target) {
  const int whole = FormatOf(target.input).precision;
  const auto cut = [&](const char* operand, const InputCut& c) {
    return c.bits == 0 ? absl::StrCat(operand, " read with all ", whole, " bits")
                       : absl::StrCat(operand, " read with ", c.bits, " of ", whole, " bits, ",
                                      RoundingName(c.rounding));
  };
  std::string text = cut("a", bits.a);
  if (HasProducts(target.kind)) absl::StrAppend(&text, ", ", cut("b", bits.b));
  absl::StrAppend(&text, bits.flush_inputs ? "; subnormal inputs are read as zero" : "",
                  bits.flush_results ? "; subnormal results become zero" : "");
  return text;
}

void SetInputs(const InputBits& bits, SumModel* model) {
  model->arithmetic.cut_a = bits.a;
  model->arithmetic.cut_b = bits.b;
  model->arithmetic.flush_inputs = bits.flush_inputs;
  model->arithmetic.flush_results = bits.flush_results;
}

// Returns every way in which blocks may be rounded, if there are blocks.
std::vector<SumModel> WithBlocks(const SumModel& model, const std::optional<Alignment>& block) {
  if (model.tree.WidestNode() < 3) return {model};
  std::vector<SumModel> models;
  for (const int precision : {24, 53, 0}) {  // 0: the precision that the probes measured
    for (const RoundingMode mode : kAdderModes) {
      models.push_back(model);
      SumModel& last = models.back();
      last.arithmetic.block = block;
      last.arithmetic.block_rounding = mode;
      for (int i = 0; precision != 0 && i < model.tree.nodes(); ++i) {
        if (model.tree.node(model.tree.leaves() + i).children.size() < 3) continue;
        last.formats[static_cast<size_t>(i)] = SumFormatOfPrecision(precision);
      }
    }
  }
  return models;
}

}  // namespace

absl::StatusOr<std::vector<SumModel>> ModelsOf(Prober* prober, const SummationTree& tree,
                                               std::vector<TestResult>* tests, std::string* odd) {
  const Target& target = prober->target();
  const auto precisions = NodePrecisions(prober, tree);
  if (!precisions.ok()) return precisions.status();
  tests->push_back({"T1", "precision", PrecisionText(*precisions)});
  const auto adders = Adders(prober, tree, *precisions, tests, odd);
  if (!adders.ok()) return adders.status();
  const auto block = Blocks(prober, tree, tests);
  if (!block.ok()) return block.status();
  const auto inputs = TestInputs(prober, tree);
  if (!inputs.ok()) return inputs.status();
  tests->push_back({"T5", "inputs", InputsText(*inputs, target)});
  const auto fused = FusedProducts(prober, tree, *precisions);
  if (!fused.ok()) return fused.status();

  SumModel base = PlainModel(target, tree, SumFormatOf(DType::kF32), true);
  for (size_t i = 0; i < precisions->size(); ++i) {
    base.formats[i] = SumFormatOfPrecision((*precisions)[i]);
  }
  if (!fused->empty()) base.fused = *fused;
  SetInputs(*inputs, &base);
  std::vector<SumModel> models;
  for (const AdderModel& adder : *adders) {
    SumModel model = base;
    model.arithmetic.rounding = adder.mode;
    model.arithmetic.aligned = adder.aligned;
    for (SumModel& m : WithBlocks(model, *block)) models.push_back(std::move(m));
  }
  return models;
}

std::vector<SumModel> ExactModels(const Target& target) {
  SummationTree tree(target.n);
  std::vector<int> all;
  for (int i = 0; i < target.n; ++i) all.push_back(i);
  tree.Join(all);
  std::vector<SumModel> models;
  for (const DType format : {target.output, DType::kF64}) {
    for (const RoundingMode mode : kAdderModes) {
      models.push_back(PlainModel(target, tree, SumFormatOf(format), true));
      models.back().arithmetic.block_rounding = mode;
      if (format == target.output) models.back().arithmetic.store = RoundingMode::kNearestEven;
    }
  }
  return models;
}

}  // namespace plumbline::sums
