#include "analysis/accumulation/accumulation_case.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/load.h"

namespace plumbline::analysis {
namespace {

constexpr uint64_t kMostValues = 1ull << 26;  // per sum: 512 MiB of doubles

// Reads the values of a floating-point tensor whose bytes fit its shape. Otherwise returns an error
// text.
std::string Read(const char* name, const v1::Tensor& tensor, std::vector<double>* out) {
  const auto dtype = static_cast<DType>(tensor.dtype());
  if (!IsFloating(dtype)) return absl::StrCat("malformed: ", name, " is not floating point");
  uint64_t n = 1;
  for (int64_t extent : tensor.shape()) {
    if (extent < 0 || (extent > 0 && n > kMostValues / static_cast<uint64_t>(extent)))
      return absl::StrCat("malformed: ", name, " has an impossible shape");
    n *= static_cast<uint64_t>(extent);
  }
  if (tensor.data().size() != n * DTypeSize(dtype))
    return absl::StrFormat("malformed: %s has %d bytes for %d elements", name, tensor.data().size(),
                           n);
  out->resize(n);
  for (size_t i = 0; i < n; ++i)
    (*out)[i] = LoadDouble(tensor.data().data(), dtype, static_cast<int64_t>(i));
  return "";
}

// Returns [m] indices. If there are none that fit, returns 0 .. m-1.
std::vector<uint64_t> Offsets(const v1::Tensor& tensor, size_t samples) {
  std::vector<uint64_t> offsets(samples);
  const auto dtype = static_cast<DType>(tensor.dtype());
  const bool given = IsInteger(dtype) && tensor.data().size() == samples * DTypeSize(dtype);
  for (size_t i = 0; i < samples; ++i) {
    offsets[i] =
        given
            ? static_cast<uint64_t>(LoadInt64(tensor.data().data(), dtype, static_cast<int64_t>(i)))
            : i;
  }
  return offsets;
}

// All NaN are equal, because their bits depend on the operation that made them.
bool SameValue(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

bool SameValues(const double* a, const double* b, size_t n) {
  return std::equal(a, a + n, b, SameValue);
}

bool SameTensor(const v1::Tensor& a, const v1::Tensor& b) {
  return a.dtype() == b.dtype() && a.data() == b.data();
}

// ---- reductions ----------------------------------------------------------------------------

// Reads one record of a whole sum: [addends, elements] in order, and the result. If it cannot be
// judged, sets `problem`.
Accumulation FromReduction(const Item& item) {
  Accumulation a;
  a.rank = item.source->rank();
  const v1::Reduction& r = item.evidence->reduction();
  if (!r.sample().has_inputs() || !r.sample().has_output()) {
    a.problem = "no-sample: " +
                (r.no_sample_reason().empty() ? "no step contained values" : r.no_sample_reason());
    return a;
  }
  const v1::ReductionCall::Op op = r.call().op();
  if (op != v1::ReductionCall::OP_SUM && op != v1::ReductionCall::OP_AVG &&
      op != v1::ReductionCall::OP_UNSPECIFIED) {
    a.problem = "no-sum: the accumulation is neither a sum nor a mean";
    return a;
  }
  const v1::Tensor& inputs = r.sample().inputs();
  a.problem = Read("inputs", inputs, &a.addends);
  if (a.problem.empty()) a.problem = Read("output", r.sample().output(), &a.result);
  if (!a.problem.empty()) return a;
  if (inputs.shape_size() != 2 || inputs.shape(0) == 0 || inputs.shape(1) == 0 ||
      a.result.size() != static_cast<uint64_t>(inputs.shape(1))) {
    a.problem = "malformed: expected inputs [K,m] and output [m] with K and m above 0";
    return a;
  }
  a.adds = static_cast<size_t>(inputs.shape(0));
  a.samples = static_cast<size_t>(inputs.shape(1));
  a.count = r.call().count();
  a.addend_dtype = static_cast<DType>(inputs.dtype());
  a.dtype = static_cast<DType>(r.sample().output().dtype());
  const auto declared = static_cast<DType>(r.call().wire_dtype());
  if (IsFloating(declared)) a.declared = declared;
  a.average = op == v1::ReductionCall::OP_AVG;
  a.start.assign(a.samples, 0);
  a.offsets = Offsets(r.sample().offsets(), a.samples);
  return a;
}

// If `next` begins with the result of `a`, appends it to `a` and returns true.
bool Continues(const Accumulation& next, Accumulation& a) {
  if (!next.problem.empty() || a.average || next.average || next.adds < 2 ||
      next.samples != a.samples || next.dtype != a.dtype || next.addend_dtype != a.addend_dtype ||
      !SameValues(next.addends.data(), a.result.data(), a.samples)) {
    return false;
  }
  a.addends.insert(a.addends.end(), next.addends.begin() + static_cast<int64_t>(a.samples),
                   next.addends.end());
  a.adds += next.adds - 1;
  a.result = next.result;
  return true;
}

// ---- updates -------------------------------------------------------------------------------

std::string NumberList(const std::vector<uint32_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size() && i < 8; ++i)
    absl::StrAppend(&text, i > 0 ? ", " : "", numbers[i]);
  return numbers.size() > 8 ? absl::StrCat(text, ", ...") : text;
}

// Checks that there are calls 0 .. K-1, each once and each with a sample of the same elements.
// Returns what is wrong.
std::string CheckCalls(const std::vector<Item>& items) {
  std::vector<uint32_t> absent;
  uint32_t expected = 0;
  size_t with_sample = 0;
  for (const Item& item : items) {
    const v1::Update& u = item.evidence->update();
    const uint32_t call = item.evidence->call();
    if (call < expected)
      return absl::StrFormat("repeated-call: micro-batch %d was recorded twice", call);
    for (; expected < call && absent.size() < 9; ++expected) absent.push_back(expected);
    expected = call + 1;
    const bool sampled =
        u.sample().has_before() && u.sample().has_after() && u.sample().has_intended();
    with_sample += sampled ? 1 : 0;
    if (!sampled) absent.push_back(call);
  }
  if (with_sample == 0) {
    const std::string& why = items[0].evidence->update().no_sample_reason();
    return "no-sample: " + (why.empty() ? "no step contained values" : why);
  }
  if (!absent.empty()) {
    return absl::StrFormat("missing-calls: no values were recorded for micro-batch %s",
                           NumberList(absent));
  }
  const v1::UpdateSample& first = items[0].evidence->update().sample();
  for (const Item& item : items) {
    const v1::UpdateSample& s = item.evidence->update().sample();
    if (!SameTensor(s.offsets(), first.offsets()))
      return "offsets-differ: micro-batches of one step have different sampled elements";
    if (s.before().dtype() != first.before().dtype() ||
        s.after().dtype() != first.before().dtype() ||
        s.intended().dtype() != first.intended().dtype())
      return "dtypes-differ: the sum or its addends changed dtype within a step";
  }
  return "";
}

void TakeLost(const v1::Update& update, const std::vector<double>& before,
              const std::vector<double>& x, const std::vector<double>& after, Accumulation& a) {
  if (a.whole_tensor) {
    const v1::UpdateSummary& s = update.summary();
    a.lost.Add({s.intended(), s.lost(), s.intended_l1(), s.lost_l1()});
    return;
  }
  for (size_t i = 0; i < x.size(); ++i) a.lost.Take(before[i], x[i], after[i]);
}

Accumulation FromUpdates(const std::vector<Item>& items) {
  Accumulation a;
  a.rank = items[0].source->rank();
  a.problem = CheckCalls(items);
  if (!a.problem.empty()) return a;
  const v1::Update& first = items[0].evidence->update();
  a.addend_dtype = static_cast<DType>(first.sample().intended().dtype());
  a.dtype = static_cast<DType>(first.sample().before().dtype());
  a.declared = a.dtype;
  a.count = first.summary().count();
  a.whole_tensor = std::all_of(items.begin(), items.end(), [](const Item& item) {
    return item.evidence->update().has_summary();
  });
  std::vector<double> before, after, x;
  for (const Item& item : items) {
    const v1::Update& u = item.evidence->update();
    for (const auto& [name, tensor, out] : {std::tuple{"before", &u.sample().before(), &before},
                                            {"after", &u.sample().after(), &after},
                                            {"intended", &u.sample().intended(), &x}}) {
      a.problem = Read(name, *tensor, out);
      if (!a.problem.empty()) return a;
    }
    if (a.adds == 0) {
      a.start = before;
      a.samples = before.size();
      a.has_start = true;
      a.offsets = Offsets(u.sample().offsets(), a.samples);
    } else if (!SameValues(before.data(), a.result.data(), std::min(before.size(), a.samples))) {
      a.problem =
          absl::StrFormat("changed-between: the sum was changed between micro-batches %d and %d",
                          a.adds - 1, a.adds);
      return a;
    }
    if (a.samples == 0 || before.size() != a.samples || after.size() != a.samples ||
        x.size() != a.samples) {
      a.problem = "malformed: before, after and intended differ in length";
      return a;
    }
    TakeLost(u, before, x, after, a);
    a.addends.insert(a.addends.end(), x.begin(), x.end());
    a.result = after;
    ++a.adds;
    if (a.addends.size() > kMostValues) {
      a.problem = "too-large: the sum has more values than the limit";
      return a;
    }
  }
  return a;
}

}  // namespace

bool Accumulation::finite(size_t i) const {
  if (!std::isfinite(result[i]) || !std::isfinite(start[i])) return false;
  for (size_t k = 0; k < adds; ++k) {
    if (!std::isfinite(addend(k, i))) return false;
  }
  return true;
}

std::vector<Accumulation> DecodeAccumulations(const SiteStep& step, uint64_t* more) {
  std::vector<Accumulation> all;
  std::map<uint32_t, std::vector<Item>> updates;
  std::map<uint32_t, std::vector<Item>> reductions;
  for (const Item& item : step.items) {
    const v1::Evidence& e = *item.evidence;
    if (e.has_update() && e.update().config().optimizer() == "accumulation")
      updates[item.source->rank()].push_back(item);
    if (e.has_reduction() && e.reduction().call().algorithm() == "accumulation")
      reductions[item.source->rank()].push_back(item);
  }
  for (const auto& [rank, items] : updates) all.push_back(FromUpdates(items));
  for (const auto& [rank, items] : reductions) {
    if (updates.contains(rank)) {
      *more += items.size();
      continue;
    }
    Accumulation a = FromReduction(items[0]);
    bool open = a.problem.empty();
    for (size_t i = 1; i < items.size(); ++i) {
      open = open && Continues(FromReduction(items[i]), a);
      if (!open) ++*more;
    }
    all.push_back(std::move(a));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Accumulation& a, const Accumulation& b) { return a.rank < b.rank; });
  return all;
}

}  // namespace plumbline::analysis
