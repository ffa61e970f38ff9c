#include "rules/lib/non_finite_trace.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "rules/lib/sample_values.h"

namespace plumbline::rules {
namespace {

// Names compared with their numbers by value: layers.2 before layers.10.
bool NaturalLess(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto number = [&](std::string_view s, size_t& k) {
      while (k + 1 < s.size() && s[k] == '0' && digit(s[k + 1])) ++k;
      const size_t begin = k;
      while (k < s.size() && digit(s[k])) ++k;
      return s.substr(begin, k - begin);
    };
    const std::string_view x = number(a, i), y = number(b, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  return a.size() - i < b.size() - j;
}

void CountValues(const v1::Tensor& tensor, Observation* o) {
  const auto read = ReadValues("values", tensor);
  if (!read.ok()) return;
  o->dtype = read->dtype;
  o->count = read->values.size();
  for (const double x : read->values) {
    if (std::isnan(x)) {
      ++o->nan;
    } else if (std::isinf(x)) {
      ++(x > 0 ? o->pos_inf : o->neg_inf);
    } else {
      o->amax = std::max(o->amax, std::abs(x));
    }
  }
}

void CountTensor(const v1::TensorState& state, Observation* o) {
  const v1::TensorSummary& s = state.summary();
  o->what = state.role().empty() ? "tensor" : state.role();
  o->dtype = static_cast<DType>(state.dtype());
  o->count = s.count();
  o->nan = s.nan();
  o->pos_inf = s.pos_inf();
  o->neg_inf = s.neg_inf();
  o->amax = s.amax();
  // Rows of probabilities whose every key is masked are NaN throughout.
  const auto columns = static_cast<uint64_t>(
      state.shape().empty() ? 0 : std::max<int64_t>(0, *state.shape().rbegin()));
  const bool rows = columns > 1 && s.nan() % columns == 0 && s.nan() < s.count();
  if (state.role() == "probabilities" && rows && s.pos_inf() + s.neg_inf() == 0)
    o->whole_rows = s.nan() / columns;
}

void CountUpdate(const v1::Update& update, Observation* o) {
  o->what = "update";
  o->dtype = static_cast<DType>(update.config().dtype());
  o->count = update.summary().count();
  o->unsorted = update.summary().non_finite();
  o->amax = NAN;
}

}  // namespace

bool Observation::mask_like() const {
  if (whole_rows > 0) return true;
  const bool place = what == "activation" || what == "tensor" || what == "probabilities";
  return place && neg_inf > 0 && nan == 0 && pos_inf == 0 && neg_inf < count;
}

bool Observation::gradient_like() const {
  return what == "gradient" || what == "update" || what.starts_with("reduction");
}

void NonFiniteTrace::Add(Observation o) {
  values_ += o.count;
  all_.push_back(std::move(o));
}

void NonFiniteTrace::Take(const SiteStep& step, const Item& item) {
  const v1::Evidence& e = *item.evidence;
  Observation o;
  o.layer = step.site.layer();
  o.op = step.site.op();
  o.rank = item.source->rank();
  o.call = e.call();
  o.order = e.order();
  if (e.has_tensor()) {
    CountTensor(e.tensor(), &o);
    Add(std::move(o));
  } else if (e.has_update()) {
    CountUpdate(e.update(), &o);
    Add(std::move(o));
  } else if (e.has_reduction() && e.reduction().has_sample()) {
    Observation out = o;
    o.what = "reduction input";
    CountValues(e.reduction().sample().inputs(), &o);
    Add(std::move(o));
    out.what = "reduction output";
    CountValues(e.reduction().sample().output(), &out);
    Add(std::move(out));
  }
}

bool NonFiniteTrace::ordered() const {
  return std::all_of(all_.begin(), all_.end(), [](const Observation& o) {
    return o.non_finite() == 0 || o.mask_like() || o.order > 0;
  });
}

const Observation* NonFiniteTrace::First() const {
  const bool by_order = ordered();
  const Observation* first = nullptr;
  const auto less = [&](const Observation& a, const Observation& b) {
    if (by_order && (a.order != b.order || a.rank != b.rank))
      return std::tie(a.order, a.rank) < std::tie(b.order, b.rank);
    if (by_order) return false;  // inputs before outputs, as they were taken
    if (a.layer != b.layer) return NaturalLess(a.layer, b.layer);
    if (a.op != b.op) return NaturalLess(a.op, b.op);
    return std::tie(a.call, a.rank) < std::tie(b.call, b.rank);
  };
  for (const Observation& o : all_) {
    if (o.non_finite() == 0 || o.mask_like()) continue;
    if (first == nullptr || less(o, *first)) first = &o;
  }
  return first;
}

const Observation* NonFiniteTrace::Before(const Observation& first) const {
  const Observation* last = nullptr;
  for (const Observation& o : all_) {
    // A reduction's input is what came before its output.
    const bool input = &o != &first && o.rank == first.rank && o.order == first.order &&
                       o.layer == first.layer && o.op == first.op && o.call == first.call &&
                       first.what == "reduction output" && o.what == "reduction input";
    if (input) return &o;
    if (o.rank != first.rank || o.order == 0 || o.order >= first.order) continue;
    if (last == nullptr || o.order >= last->order) last = &o;
  }
  return last;
}

size_t NonFiniteTrace::sites() const {
  std::set<std::pair<std::string_view, std::string_view>> sites;
  for (const Observation& o : all_) {
    if (o.non_finite() > 0 && !o.mask_like()) sites.emplace(o.layer, o.op);
  }
  return sites.size();
}

bool NonFiniteTrace::masks() const {
  return std::any_of(all_.begin(), all_.end(), [](const Observation& o) { return o.mask_like(); });
}

void NonFiniteTrace::Clear() {
  all_.clear();
  values_ = 0;
}

}  // namespace plumbline::rules
