#include "analysis/tensor/non_finite_trace.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "analysis/collective/case/case.h"
#include "analysis/sample/sample.h"

namespace plumbline::analysis {
namespace {

// Compares names with their numbers by value: layers.2 comes before layers.10.
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

// Counts the values of a sample that came without a summary.
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

// Returns the first row of [N,m] values that holds a NaN or an infinity.
uint32_t FirstBadRow(const v1::Tensor& tensor) {
  const auto read = ReadValues("values", tensor);
  if (!read.ok()) return 0;
  const auto columns = static_cast<size_t>(read->shape[1]);
  const auto bad = std::find_if(read->values.begin(), read->values.end(),
                                [](double x) { return !std::isfinite(x); });
  return static_cast<uint32_t>(static_cast<size_t>(bad - read->values.begin()) / columns);
}

bool IsAccumulation(const v1::Reduction& reduction) {
  return reduction.call().algorithm() == "accumulation";
}

// ---- evidence as observations: how many values of which kind, and where ----

void CountTensor(const v1::TensorState& state, Observation* o) {
  const v1::TensorSummary& s = state.summary();
  o->what = state.role().empty() ? "tensor" : state.role();
  if (o->what == "parameter") o->what = kWeightBefore;
  o->dtype = static_cast<DType>(state.dtype());
  o->count = s.count();
  o->nan = s.nan();
  o->pos_inf = s.pos_inf();
  o->neg_inf = s.neg_inf();
  o->amax = s.amax();
  // If every key of a row of probabilities is masked, the whole row is NaN.
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

uint64_t Observation::non_finite() const {
  uint64_t sum = 0;
  for (const uint64_t n : {nan, pos_inf, neg_inf, unsorted}) {
    if (__builtin_add_overflow(sum, n, &sum)) return std::numeric_limits<uint64_t>::max();
  }
  return sum;
}

// Infinities that are intended: attention masks, and rows of probabilities that are fully masked.
bool Observation::mask_like() const {
  if (whole_rows > 0) return true;
  const bool place = what == "activation" || what == "tensor" || what == "probabilities";
  return place && neg_inf > 0 && nan == 0 && pos_inf == 0 && neg_inf < count;
}

bool Observation::gradient_like() const {
  return what == "gradient" || what == "update" || what.starts_with("reduction");
}

bool Observation::after_loss() const {
  if (what == "gradient" || what == "update") return true;
  return what.starts_with("reduction") && (op == "accumulation" || layer.starts_with("gradient"));
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
    if (!e.tensor().has_summary()) return;  // a digest without values
    CountTensor(e.tensor(), &o);
    Add(std::move(o));
  } else if (e.has_update()) {
    // A non-finite value before the update belongs to the weight, and came first.
    Observation start = o;
    CountUpdate(e.update(), &o);
    const v1::UpdateConfig& config = e.update().config();
    if (o.unsorted > 0 && e.update().has_sample() && !IsAverage(config) &&
        !IsAccumulation(config)) {
      start.what = kWeightBefore;
      CountValues(e.update().sample().before(), &start);
      if (start.non_finite() > 0) Add(std::move(start));
    }
    Add(std::move(o));
  } else if (e.has_reduction() && e.reduction().has_sample()) {
    Observation out = o;
    o.what = "reduction input";
    CountValues(e.reduction().sample().inputs(), &o);
    // One record covers the whole world, so the row gives the rank.
    const v1::Tensor& inputs = e.reduction().sample().inputs();
    if (HoldsAllRanks(e.reduction()) && e.reduction().call().group().empty() &&
        !IsAccumulation(e.reduction()) && o.non_finite() > 0)
      o.rank = FirstBadRow(inputs);
    Add(std::move(o));
    out.what = "reduction output";
    CountValues(e.reduction().sample().output(), &out);
    Add(std::move(out));
  }
}

// ---- which came first ----

bool NonFiniteTrace::ordered() const {
  return std::all_of(all_.begin(), all_.end(), [](const Observation& o) {
    return o.non_finite() == 0 || o.mask_like() || o.order > 0;
  });
}

// Decides which of two observations came first.
class NonFiniteTrace::Precedence {
 public:
  Precedence(const std::vector<Observation>& all, bool by_order) : by_order_(by_order) {
    if (!by_order) return;
    for (const Observation& o : all) orders_.try_emplace({o.rank, PlaceOf(o)}, o.order);
  }

  // layer, op, call, what
  using Place = std::tuple<std::string_view, std::string_view, uint32_t, std::string_view>;
  static Place PlaceOf(const Observation& o) { return {o.layer, o.op, o.call, o.what}; }

  // Returns -1 if a came first, 1 if b did, 0 if they are at the same place. Sets `apart` if no
  // rank decides.
  int Compare(const Observation& a, const Observation& b, bool* apart) const {
    if (PlaceOf(a) == PlaceOf(b)) return 0;
    if (a.at_start() != b.at_start()) return a.at_start() ? -1 : 1;
    if (by_order_ && a.rank == b.rank) return a.order < b.order ? -1 : 1;
    if (by_order_ && !a.at_start()) {
      const uint64_t a_at_b = OrderOf(b.rank, a), b_at_a = OrderOf(a.rank, b);
      if (a_at_b != 0 && a_at_b != b.order) return a_at_b < b.order ? -1 : 1;
      if (b_at_a != 0 && b_at_a != a.order) return a.order < b_at_a ? -1 : 1;
      // A reduction's input and output have one number.
      if (a.layer == b.layer && a.op == b.op && a.call == b.call)
        return a.what == "reduction input" ? -1 : 1;
      *apart = true;
      if (a.gradient_like() != b.gradient_like()) return b.gradient_like() ? -1 : 1;
    }
    const bool backward = by_order_ && a.gradient_like();
    const bool less = NameLess(a, b);
    return less != backward ? -1 : 1;
  }

 private:
  uint64_t OrderOf(uint32_t rank, const Observation& o) const {
    const auto found = orders_.find({rank, PlaceOf(o)});
    return found == orders_.end() ? 0 : found->second;
  }

  static bool NameLess(const Observation& a, const Observation& b) {
    if (a.layer != b.layer) return NaturalLess(a.layer, b.layer);
    if (a.op != b.op) return NaturalLess(a.op, b.op);
    return std::tie(a.call, a.what) < std::tie(b.call, b.what);
  }

  bool by_order_;
  std::map<std::pair<uint32_t, Place>, uint64_t> orders_;
};

// Returns the first observation of each rank with such a value, by rank. Without an order, returns
// all of them.
std::vector<const Observation*> NonFiniteTrace::FirstOfRanks(bool by_order) const {
  std::vector<const Observation*> firsts;
  std::map<uint32_t, const Observation*> of_rank;
  for (const Observation& o : all_) {
    if (o.non_finite() == 0 || o.mask_like()) continue;
    if (!by_order) {
      firsts.push_back(&o);
      continue;
    }
    const Observation*& first = of_rank[o.rank];
    if (first == nullptr ||
        (o.at_start() != first->at_start() ? o.at_start() : o.order < first->order))
      first = &o;
  }
  for (const auto& [rank, first] : of_rank) firsts.push_back(first);
  return firsts;
}

std::optional<FirstSeen> NonFiniteTrace::First() const {
  const bool by_order = ordered();
  const std::vector<const Observation*> candidates = FirstOfRanks(by_order);
  if (candidates.empty()) return std::nullopt;
  const Precedence precedence(all_, by_order);
  FirstSeen seen{candidates[0], {}, 0, false};
  bool ignored = false;
  for (const Observation* o : candidates) {
    const int order = precedence.Compare(*o, *seen.observation, &ignored);
    if (order < 0 || (order == 0 && o->rank < seen.observation->rank)) seen.observation = o;
  }
  for (const Observation* o : candidates) {
    if (precedence.Compare(*o, *seen.observation, &seen.apart) == 0) seen.ranks.push_back(o->rank);
  }
  std::sort(seen.ranks.begin(), seen.ranks.end());
  seen.ranks.erase(std::unique(seen.ranks.begin(), seen.ranks.end()), seen.ranks.end());
  const auto place = Precedence::PlaceOf(*seen.observation);
  seen.finite_ranks =
      static_cast<size_t>(std::count_if(all_.begin(), all_.end(), [&](const Observation& o) {
        return o.non_finite() == 0 && o.count > 0 && Precedence::PlaceOf(o) == place;
      }));
  return seen;
}

// Returns the last observation of the same rank before it.
const Observation* NonFiniteTrace::Before(const Observation& first) const {
  const Observation* last = nullptr;
  if (first.at_start()) return last;
  for (const Observation& o : all_) {
    // A reduction's input comes before its output.
    const bool input = &o != &first && o.rank == first.rank && o.order == first.order &&
                       o.layer == first.layer && o.op == first.op && o.call == first.call &&
                       first.what == "reduction output" && o.what == "reduction input";
    if (input) return &o;
    if (o.rank != first.rank || o.order == 0 || o.order >= first.order) continue;
    if (last == nullptr || o.order >= last->order) last = &o;
  }
  return last;
}

// ---- additional information ----

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

std::map<std::pair<std::string, std::string>, bool> NonFiniteTrace::looked_at() const {
  std::map<std::pair<std::string, std::string>, bool> sites;
  for (const Observation& o : all_) {
    bool& finite = sites.try_emplace({o.layer, o.op}, true).first->second;
    finite = finite && (o.non_finite() == 0 || o.mask_like());
  }
  return sites;
}

NonFiniteTrace::InFront NonFiniteTrace::LookedInFront(const Observation& first) const {
  std::set<std::string_view> weights, activations;
  for (const Observation& o : all_) {
    if (o.count == 0 || o.rank != first.rank || o.order == 0 || o.order >= first.order) continue;
    if (o.what == "weight" || o.at_start()) weights.insert(o.layer);
    if (o.what == "activation") activations.insert(o.layer);
  }
  return {weights.size(), activations.size()};
}

std::vector<const Observation*> NonFiniteTrace::MomentsOf(const Observation& weight) const {
  std::vector<const Observation*> found;
  for (const Observation& o : all_) {
    const bool moment = o.what == "exp_avg" || o.what == "exp_avg_sq" ||
                        o.what == "max_exp_avg_sq" || o.what == "momentum_buffer";
    if (moment && o.rank == weight.rank && o.layer == weight.layer && o.non_finite() > 0)
      found.push_back(&o);
  }
  return found;
}

bool NonFiniteTrace::weights_finite() const {
  bool any = false;
  for (const Observation& o : all_) {
    if (o.count == 0 || (o.what != "weight" && !o.at_start())) continue;
    if (o.non_finite() > 0) return false;
    any = true;
  }
  return any;
}

void NonFiniteTrace::Clear() {
  all_.clear();
  values_ = 0;
}

}  // namespace plumbline::analysis
