#include "analysis/sums/sum_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"

namespace plumbline::sums {
namespace {

bool IsSubnormal(double x, int min_exponent) {
  return x != 0 && std::abs(x) < std::ldexp(1.0, min_exponent);
}

std::string CutInWords(const char* operand, const InputCut& cut) {
  if (cut.bits == 0) return "";
  return absl::StrCat("; ", operand, " cut to ", cut.bits, " bits, ", RoundingName(cut.rounding));
}

std::string AlignmentInWords(const Alignment& alignment) {
  return absl::StrCat("aligned to the largest and cut ", alignment.floor ? "down" : "towards zero",
                      " at ", alignment.fraction_bits, " fraction bits");
}

// Returns the nodes whose format is not the usual one, with the leaves under the lowest of them.
std::string ExceptionsInWords(const SumModel& model, const SumFormat& usual) {
  std::map<std::string, int> counts;
  for (const SumFormat& format : model.formats) {
    if (format != usual) ++counts[SumFormatName(format)];
  }
  std::string text;
  for (const auto& [name, count] : counts) {
    int first = std::numeric_limits<int>::max();
    int last = -1;
    for (int i = 0; i < model.tree.nodes(); ++i) {
      if (SumFormatName(model.formats[static_cast<size_t>(i)]) != name) continue;
      for (const int child : model.tree.node(model.tree.leaves() + i).children) {
        if (!model.tree.IsLeaf(child)) continue;
        first = std::min(first, child);
        last = std::max(last, child);
      }
    }
    absl::StrAppend(&text, "; ", name, " at ", count, count == 1 ? " node" : " nodes");
    if (last >= 0 && first == last) absl::StrAppend(&text, " (adding term ", first, ")");
    if (last > first) absl::StrAppend(&text, " (adding terms of ", first, "..", last, ")");
  }
  return text;
}

std::string ProductsInWords(const SumModel& model) {
  if (!HasProducts(model.kind)) return "";
  const auto fused = std::count(model.fused.begin(), model.fused.end(), 1);
  const auto n = static_cast<int64_t>(model.fused.size());
  if (2 * SumFormatOf(model.input).precision <= model.accumulator().precision) {
    return "; products exact";
  }
  if (fused == 0) return absl::StrCat("; products rounded to ", SumFormatName(model.product));
  if (fused == n) return "; products enter unrounded";
  return absl::StrCat("; products fused, but rounded to ", SumFormatName(model.product), " in ",
                      n - fused, " of ", n);
}

}  // namespace

SumFormat SumModel::accumulator() const {
  std::map<int, int> counts;
  SumFormat usual;
  int most = 0;
  for (const SumFormat& format : formats) {
    const int count = ++counts[format.precision];
    if (count > most) {
      most = count;
      usual = format;
    }
  }
  return usual;
}

SumModel PlainModel(const Target& target, SummationTree tree, const SumFormat& format, bool fused) {
  SumModel model;
  model.kind = target.kind;
  model.input = target.input;
  model.output = target.output;
  model.formats.assign(static_cast<size_t>(tree.nodes()), format);
  model.fused.assign(static_cast<size_t>(tree.leaves()), fused ? 1 : 0);
  model.product = SumFormatOf(target.input);
  model.tree = std::move(tree);
  return model;
}

std::string ArithmeticInWords(const SumModel& model) {
  const Arithmetic& a = model.arithmetic;
  const SumFormat usual = model.accumulator();
  const bool blocks = model.tree.WidestNode() > 2;
  std::string text;
  if (blocks && !a.block && model.tree.nodes() == 1) {
    text = absl::StrCat("exact, rounded once, ", RoundingName(a.block_rounding));
  } else {
    text = absl::StrCat(SumFormatName(usual), " adds, ", RoundingName(a.rounding));
    if (a.aligned) absl::StrAppend(&text, ", addends ", AlignmentInWords(*a.aligned));
    if (blocks) {
      absl::StrAppend(&text, "; blocks ", a.block ? AlignmentInWords(*a.block) : "added exactly",
                      ", rounded ", RoundingName(a.block_rounding));
    }
  }
  absl::StrAppend(&text, ExceptionsInWords(model, usual), ProductsInWords(model));
  absl::StrAppend(&text, CutInWords("a", a.cut_a), CutInWords("b", a.cut_b));
  if (a.flush_inputs) absl::StrAppend(&text, "; subnormal inputs read as zero");
  if (a.flush_results) absl::StrAppend(&text, "; subnormal results flushed to zero");
  if (SumFormatOf(model.output).precision < usual.precision) {
    absl::StrAppend(&text, "; stored as ", DTypeName(model.output), ", ", RoundingName(a.store));
  }
  return text;
}

Replay::Replay(const SumModel& model)
    : model_(model),
      a_(static_cast<size_t>(model.tree.leaves())),
      b_(a_.size()),
      values_(a_.size() + static_cast<size_t>(model.tree.nodes())) {}

double Replay::Flushed(double x, const SumFormat& format) const {
  return model_.arithmetic.flush_results && IsSubnormal(x, format.min_exponent) ? 0.0 : x;
}

Exact Replay::Leaf(size_t i) const {
  if (!HasProducts(model_.kind)) return {a_[i], 0};
  const Exact product = ProductOf(a_[i], b_[i]);
  if (model_.fused[i] != 0) return product;
  return {Flushed(RoundExact(product, model_.product, model_.arithmetic.rounding), model_.product),
          0};
}

// A product's exponent is the sum of its factors' exponents, not normalised. Subnormals keep the
// smallest exponent.
int Replay::ExponentOf(int child) const {
  const auto i = static_cast<size_t>(child);
  const auto of = [this](double x) {
    return std::max(std::ilogb(x), SumFormatOf(model_.input).min_exponent);
  };
  if (values_[i].head == 0) return std::numeric_limits<int>::min();
  if (!model_.tree.IsLeaf(child)) return std::ilogb(values_[i].head);
  return HasProducts(model_.kind) ? of(a_[i]) + of(b_[i]) : of(a_[i]);
}

double Replay::JoinAligned(const std::vector<int>& children, const Alignment& alignment,
                           const SumFormat& format, RoundingMode mode) const {
  int top = std::numeric_limits<int>::min();
  double plain = 0;
  for (const int child : children) {
    plain += values_[static_cast<size_t>(child)].head;
    top = std::max(top, ExponentOf(child));
  }
  if (!std::isfinite(plain) || top == std::numeric_limits<int>::min()) return plain;
  const double unit = std::ldexp(1.0, std::max(top - alignment.fraction_bits, -1074));
  ExactSum sum;  // many terms of many bits may not fit a double
  for (const int child : children) {
    sum.Add(CutTo(values_[static_cast<size_t>(child)].head, unit, alignment.floor));
  }
  return RoundExact(sum, format, mode);
}

double Replay::JoinExactly(const std::vector<int>& children, const SumFormat& format) const {
  ExactSum sum;
  double plain = 0;
  for (const int child : children) {
    const Exact& value = values_[static_cast<size_t>(child)];
    plain += value.head;
    if (!std::isfinite(value.head)) continue;
    sum.Add(value.head);
    sum.Add(value.tail);
  }
  if (!std::isfinite(plain)) return plain;
  return RoundExact(sum, format, model_.arithmetic.block_rounding);
}

double Replay::JoinTwo(int node, int x, int y) {
  const SumFormat& format = model_.formats[static_cast<size_t>(node - model_.tree.leaves())];
  const RoundingMode mode = model_.arithmetic.rounding;
  const Exact& p = values_[static_cast<size_t>(x)];
  const Exact& q = values_[static_cast<size_t>(y)];
  const auto whole = [&](int child, const Exact& v) {
    const auto i = static_cast<size_t>(child);
    const bool product = model_.tree.IsLeaf(child) && HasProducts(model_.kind) &&
                         model_.fused[i] != 0 && model_.input == DType::kF64;
    return v.tail == 0 && !(product && std::abs(v.head) < 0x1p-960);
  };
  if (whole(x, p) && whole(y, q)) return RoundExact(SumOf(p.head, q.head), format, mode);
  // A fused product in f64. Its tail may be below the smallest double; fma handles that.
  if (mode == RoundingMode::kNearestEven && format.precision == 53) {
    if (model_.tree.IsLeaf(y) && !whole(y, q) && whole(x, p)) {
      return std::fma(a_[static_cast<size_t>(y)], b_[static_cast<size_t>(y)], p.head);
    }
    if (model_.tree.IsLeaf(x) && !whole(x, p) && whole(y, q)) {
      return std::fma(a_[static_cast<size_t>(x)], b_[static_cast<size_t>(x)], q.head);
    }
  }
  ExactSum sum;
  for (const double part : {p.head, p.tail, q.head, q.tail}) {
    if (!std::isfinite(part)) return p.head + q.head;
    sum.Add(part);
  }
  return RoundExact(sum, format, mode);
}

double Replay::Run(absl::Span<const double> a, absl::Span<const double> b) {
  const Arithmetic& arithmetic = model_.arithmetic;
  const int least = SumFormatOf(model_.input).min_exponent;
  const auto read = [&](double x, const InputCut& cut) {
    const double value = CutInput(x, model_.input, cut);
    return arithmetic.flush_inputs && IsSubnormal(value, least) ? 0.0 : value;
  };
  for (size_t i = 0; i < a_.size(); ++i) {
    a_[i] = read(a[i], arithmetic.cut_a);
    b_[i] = read(b[i], arithmetic.cut_b);
    values_[i] = Leaf(i);
  }
  const SummationTree& tree = model_.tree;
  for (int i = tree.leaves(); i <= tree.root(); ++i) {
    const std::vector<int>& children = tree.node(i).children;
    const SumFormat& format = model_.formats[static_cast<size_t>(i - tree.leaves())];
    double sum = 0;
    if (children.size() > 2) {
      sum = arithmetic.block
                ? JoinAligned(children, *arithmetic.block, format, arithmetic.block_rounding)
                : JoinExactly(children, format);
    } else {
      sum = arithmetic.aligned
                ? JoinAligned(children, *arithmetic.aligned, format, arithmetic.rounding)
                : JoinTwo(i, children[0], children[1]);
    }
    values_[static_cast<size_t>(i)] = {Flushed(sum, format), 0};
  }
  const SumFormat stored = SumFormatOf(model_.output);
  return Flushed(RoundBits(values_.back().head, stored, arithmetic.store), stored);
}

}  // namespace plumbline::sums
