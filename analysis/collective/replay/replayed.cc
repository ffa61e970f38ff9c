#include "analysis/collective/replay/replayed.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/compensated.h"
#include "analysis/collective/replay/names.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {
namespace {

class CallReplay {
 public:
  explicit CallReplay(const ReductionCase& c) : c_(c), out_(JudgedColumns(c)) {
    arithmetics_ = CandidateArithmetics(c_, out_.columns);
  }

  ReductionReplay Run() {
    if (out_.columns.empty()) return std::move(out_);
    samples_ = FindDistinct(c_, out_.columns);
    out_.distinct = static_cast<int32_t>(samples_.first.size());
    out_.without_rings = c_.ranks > kMostRingRows;
    Count();
    Search([](const Arithmetic& a) { return a.flush == Flush::kNone; });
    // If there are no subnormals, flushing changes only results in which addends cancel. So tries
    // such arithmetics only if all others fail.
    if (accepted_.empty() || HoldsSubnormals())
      Search([](const Arithmetic& a) { return a.flush != Flush::kNone; });
    RankRivals();
    if (accepted_.empty()) {
      TryCompensated();
    } else {
      Accept();
    }
    return std::move(out_);
  }

 private:
  template <typename Chosen>
  void Search(Chosen chosen) {
    for (size_t i = 0; i < arithmetics_.size(); ++i) {
      if (!chosen(arithmetics_[i])) continue;
      Take(arithmetics_[i],
           SearchArithmetic(c_, arithmetics_[i], static_cast<int>(i), *ShapesOf(arithmetics_[i]),
                            samples_.first, out_.needed));
    }
  }

  bool HoldsSubnormals() const {
    const double least = PowerOfTwo(FormatOf(c_.wire_dtype).min_exponent);
    const auto subnormal = [&](double x) { return x != 0 && std::fabs(x) < least; };
    for (const int32_t column : out_.columns) {
      if (subnormal(c_.output[static_cast<size_t>(column)])) return true;
      for (int r = 0; r < c_.ranks; ++r) {
        const double x = c_.input(r, column);
        if (subnormal(x) || (c_.average() && subnormal(x / c_.ranks))) return true;
      }
    }
    return false;
  }

  // Returns the shapes to try. Searches unknown orders only if partial sums are narrow, because
  // wide sums nearly never depend on the order.
  const std::shared_ptr<const SumShapes>& ShapesOf(const Arithmetic& a) {
    const bool search = a.group == 1 && !a.wide();
    auto& shapes = shapes_[{c_.ranks / a.group, search}];
    if (shapes == nullptr)
      shapes = std::make_shared<SumShapes>(MakeShapes(c_, c_.ranks / a.group, search));
    return shapes;
  }

  void Count() {
    for (const Arithmetic& a : arithmetics_) {
      out_.candidates += a.exact_only ? 1 : ShapesOf(a)->candidates() + (a.wide() ? 1 : 0);
      if (MayCompensate(a)) out_.candidates += CompensatedSums(c_.ranks);
    }
    out_.needed =
        static_cast<int32_t>(std::ceil(std::log(static_cast<double>(out_.candidates) * 1e6)));
  }

  // If too many candidates of one arithmetic are equal, no claim about their orders is possible, so
  // keeps only a part of them.
  bool Thin(std::vector<MatchCounts>& tallies) {
    constexpr size_t kMost = 512;
    if (tallies.size() <= kMost) return false;
    std::stable_sort(
        tallies.begin(), tallies.end(),
        [](const MatchCounts& a, const MatchCounts& b) { return a.missed < b.missed; });
    std::vector<MatchCounts> kept;
    const size_t every = tallies.size() / kMost;
    for (size_t i = 0; i < tallies.size(); ++i) {
      const bool ring = tallies[i].shape.kind == SumShape::Kind::kRing;
      if (!ring || i < kMost || i % every == 0) kept.push_back(tallies[i]);
    }
    tallies = std::move(kept);
    return true;
  }

  void Take(const Arithmetic& a, SearchResult result) {
    crowded_ |= Thin(result.accepted);
    crowded_ |= Thin(result.near);
    TakeRepeated(a, result);
    const auto append = [](std::vector<MatchCounts>& to, const std::vector<MatchCounts>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(accepted_, result.accepted);
    append(rivals_, result.near);
    append(rivals_, result.best);
  }

  // Tests the repeated samples. They may refute a candidate, but count as one observation.
  void TakeRepeated(const Arithmetic& a, SearchResult& result) {
    if (samples_.repeated.empty() || result.accepted.empty()) return;
    std::vector<MatchCounts> further = result.accepted;
    TestFurther(c_, a, *ShapesOf(a), samples_.repeated, further);
    std::vector<MatchCounts> kept;
    for (size_t i = 0; i < further.size(); ++i) {
      MatchCounts t = result.accepted[i];
      if (further[i].missed == 0) {
        kept.push_back(t);
        continue;
      }
      t.missed = 1;
      result.near.push_back(t);
    }
    result.accepted = std::move(kept);
  }

  // Returns true for sums in the wire's dtype, rounded to nearest, rank by rank.
  static bool MayCompensate(const Arithmetic& a) {
    return !a.wide() && !a.exact_only && a.group == 1 && a.rounding == HopRounding::kNearest &&
           a.flush == Flush::kNone;
  }

  // If no listed candidate explains the samples, and the best compensated sum is better than the
  // runner-up, makes it the runner-up.
  void TryCompensated() {
    for (const Arithmetic& a : arithmetics_) {
      if (!MayCompensate(a)) continue;
      const CompensatedSum sum = BestCompensatedSum(c_, a, out_.columns, out_.needed);
      const int32_t matches = sum.tested - sum.missed;
      if (sum.missed >= out_.needed || matches <= out_.runner_up_matches) continue;
      out_.runner_up = sum.Words(a.partial);
      out_.runner_up_matches = matches;
      out_.discriminating = static_cast<int32_t>(out_.columns.size()) - matches;
    }
  }

  // Tests compensated sums, the rivals of a wide accumulation, if they divide at the same place.
  void RuleOutCompensated() {
    std::set<std::pair<DType, Averaging>> accepted;
    for (const MatchCounts& t : accepted_)
      accepted.insert({ArithmeticOf(t).wire, ArithmeticOf(t).averaging});
    for (const Arithmetic& a : arithmetics_) {
      if (!MayCompensate(a) || accepted.count({a.wire, a.averaging}) == 0) continue;
      const CompensatedSum sum = BestCompensatedSum(c_, a, samples_.first, out_.needed);
      if (!out_.compensated.empty() && sum.missed >= out_.compensated_differs) continue;
      out_.compensated = sum.Words(a.partial);
      out_.compensated_differs = sum.missed;
    }
  }

  const Arithmetic& ArithmeticOf(const MatchCounts& t) const {
    return arithmetics_[static_cast<size_t>(t.arithmetic)];
  }
  const SumShapes& ShapesOf(const MatchCounts& t) { return *ShapesOf(ArithmeticOf(t)); }
  std::string Family(const MatchCounts& t) {
    return FamilyOf(ArithmeticOf(t), t.shape, ShapesOf(t), c_.ranks);
  }
  Parameters Of(const MatchCounts& t) {
    return ParametersOf(ArithmeticOf(t), t.shape, ShapesOf(t));
  }

  // Returns a member's expressions for the first samples. Equal expressions give equal texts.
  std::string Expressions(const MatchCounts& t, bool with_flush = true) {
    constexpr size_t kCompared = 64;
    const Arithmetic& a = ArithmeticOf(t);
    std::string text = absl::StrCat(
        DTypeName(a.partial), " ", DTypeName(a.wire), " ", static_cast<int>(a.rounding), " ",
        static_cast<int>(a.averaging), " ", with_flush ? static_cast<int>(a.flush) : 0);
    for (size_t i = 0; i < std::min(kCompared, out_.columns.size()); ++i)
      absl::StrAppend(&text, " ", ExpressionAt(a, t.shape, ShapesOf(t), out_.columns[i]));
    return text;
  }

  // Removes members whose expressions are equal to those of a preferred member, because they are
  // the same candidate under another name. (Keeps rings in the order of the rows, because their
  // start and direction then cannot be distinguished.)
  void DropAliases() {
    constexpr size_t kMost = 256;  // limit of members that are compared
    std::set<std::string> seen;
    std::vector<MatchCounts> kept;
    size_t looked = 0;
    for (const MatchCounts& t : accepted_) {
      const bool wide = ArithmeticOf(t).wide() || ArithmeticOf(t).exact_only;
      const bool fresh = wide || ++looked > kMost || seen.insert(Expressions(t)).second;
      if (fresh || Preference(t) == 0) kept.push_back(t);
    }
    accepted_ = std::move(kept);
  }

  // Sorts by preference for the name: rings in the order of the rows, trees, other orders, groups.
  void SortByPreference() {
    std::stable_sort(
        accepted_.begin(), accepted_.end(),
        [&](const MatchCounts& a, const MatchCounts& b) { return Preference(a) < Preference(b); });
  }
  int Preference(const MatchCounts& t) {
    if (ArithmeticOf(t).group > 1) return 3;
    if (t.shape.kind == SumShape::Kind::kTree || t.shape.kind == SumShape::Kind::kTreePair)
      return 1;
    if (t.shape.kind == SumShape::Kind::kExact) return 2;
    const Parameters p = Of(t);
    const auto order = p.find("ring_order");
    return order == p.end() || order->second.empty() ? 0 : 2;
  }

  void RankRivals() {
    std::stable_sort(rivals_.begin(), rivals_.end(),
                     [](const MatchCounts& a, const MatchCounts& b) {
                       return static_cast<double>(a.missed) * b.tested <
                              static_cast<double>(b.missed) * a.tested;
                     });
    if (accepted_.empty() && !rivals_.empty()) SetRunnerUp("");
  }

  // Sets the best rival outside of `kin` ("" means all). The shares of rivals are estimates so far,
  // so counts the first few completely.
  void SetRunnerUp(const std::string& kin) {
    constexpr int kCounted = 4;
    int counted = 0;
    int32_t best = -1;
    int32_t best_repeated = 0;
    for (const MatchCounts& t : rivals_) {
      const std::string family = Family(t);
      if (!kin.empty() && (KinOf(family) == kin || out_.families.count(family) > 0)) continue;
      if (!kin.empty() && SameSums(t)) continue;
      const auto count = [&](const std::vector<int32_t>& columns) {
        return CountMatches(c_, ArithmeticOf(t), ShapesOf(t), t.shape, columns);
      };
      const int32_t matches = count(samples_.first);
      if (matches > best) {
        best = matches;
        best_repeated = count(samples_.repeated);
        out_.runner_up = ModelWords(family, Of(t));
      }
      if (++counted == kCounted) break;
    }
    out_.runner_up_matches = std::max(best, 0) + best_repeated;
    out_.discriminating = out_.distinct - std::max(best, 0);
  }

  void Accept() {
    SortByPreference();
    DropAliases();
    std::set<std::string> kin;
    for (const MatchCounts& t : accepted_) {
      out_.families.insert(Family(t));
      kin.insert(KinOf(Family(t)));
    }
    out_.explained = true;
    out_.matches = static_cast<int32_t>(out_.columns.size());
    out_.name = NameOf(kin);
    const MatchCounts& first = accepted_.front();
    out_.arithmetic = ArithmeticOf(first);
    out_.shape = first.shape;
    out_.shapes = ShapesOf(out_.arithmetic);
    out_.narrow_partials =
        c_.ranks > 2 && std::all_of(accepted_.begin(), accepted_.end(), [&](const MatchCounts& t) {
          const Arithmetic& a = ArithmeticOf(t);
          return !a.wide() && !a.exact_only && FormatOf(a.partial).precision < 24;
        });
    SetRunnerUp(*kin.begin());
    Share();
    Prove(kin);
    const bool wide = kin.size() == 1 && *kin.begin() == "fp32";
    if (wide) RuleOutCompensated();
    out_.proved = out_.class_proved && (!wide || out_.compensated_differs >= out_.needed);
  }

  std::string NameOf(const std::set<std::string>& kin) const {
    if (kin.size() > 1) return "indistinguishable";
    if (*kin.begin() != "fp32") return *kin.begin();
    return out_.families.size() == 1 ? *out_.families.begin() : "fp32";
  }

  void Share() {
    out_.shared = Of(accepted_.front());
    for (const MatchCounts& t : accepted_) {
      const Parameters p = Of(t);
      std::erase_if(out_.shared, [&](const auto& entry) {
        const auto found = p.find(entry.first);
        return found == p.end() || found->second != entry.second;
      });
    }
  }

  // Returns true if `t` has the expressions of an accepted member under another name, and differs
  // only in flushed subnormals.
  bool SameSums(const MatchCounts& t) {
    if (ArithmeticOf(t).flush == Flush::kNone) return false;
    constexpr size_t kMost = 256;
    for (size_t i = accepted_sums_.size(); i < std::min(kMost, accepted_.size()); ++i)
      accepted_sums_.push_back(Expressions(accepted_[i], false));
    const std::string sums = Expressions(t, false);
    return std::find(accepted_sums_.begin(), accepted_sums_.end(), sums) != accepted_sums_.end();
  }

  void Prove(const std::set<std::string>& kin) {
    out_.class_proved =
        kin.size() == 1 && out_.discriminating >= out_.needed && !out_.without_rings;
    out_.parameters = out_.shared;
    for (const char* order : {"start", "direction", "ring_order", "segments", "segment_step"}) {
      if (crowded_) out_.parameters.erase(order);
    }
    for (const MatchCounts& t : rivals_) {
      if (t.missed >= out_.needed) continue;
      if (kin.count(KinOf(Family(t))) == 0 && !SameSums(t)) out_.class_proved = false;
      // A rival of the same kin is not excluded, so uses the common name of both.
      if (kin.size() == 1 && *kin.begin() == "fp32" && Family(t) != out_.name) out_.name = "fp32";
      const Parameters p = Of(t);
      std::erase_if(out_.parameters, [&](const auto& entry) {
        const auto found = p.find(entry.first);
        return found != p.end() && found->second != entry.second;
      });
    }
  }

  const ReductionCase& c_;
  ReductionReplay out_;
  std::vector<Arithmetic> arithmetics_;
  std::map<std::pair<int, bool>, std::shared_ptr<const SumShapes>> shapes_;
  std::vector<MatchCounts> accepted_;
  std::vector<MatchCounts> rivals_;
  std::vector<std::string> accepted_sums_;  // of the first members of accepted_, without flushes
  DistinctSamples samples_;
  bool crowded_ = false;  // some candidates were left out
};

}  // namespace

ReductionReplay ReplayReduction(const ReductionCase& c) { return CallReplay(c).Run(); }

ReductionReplay JudgedColumns(const ReductionCase& c) {
  ReductionReplay out;
  for (int32_t i = 0; i < c.samples; ++i) {
    bool finite = true;
    for (int r = 0; r < c.ranks; ++r) finite &= std::isfinite(c.input(r, i));
    if (finite) {
      out.columns.push_back(i);
    } else {
      ++out.aside;
    }
  }
  return out;
}

std::string ReductionReplay::Words() const {
  const bool either = class_proved && !proved && !compensated.empty();
  return ModelWords(name, parameters) + (either ? " (or a compensated sum)" : "");
}

void ReductionReplay::AddDetails(google::protobuf::Struct& details) const {
  google::protobuf::Struct& model = PutStruct(details, "model");
  Put(model, "name", name);
  for (const auto& [key, value] : parameters) {
    if (value.empty() || IsDefault(key, value)) continue;
    if (IsNumber(key)) {
      Put(model, key, std::stod(value));
    } else {
      Put(model, key, value);
    }
  }
  Put(details, "matches", matches);
  Put(details, "samples", static_cast<double>(columns.size()));
  Put(details, "discriminating", discriminating);
  Put(details, "needed", needed);
  Put(details, "candidates", static_cast<double>(candidates));
  PutFlag(details, "proved", proved);
  if (distinct < static_cast<int32_t>(columns.size())) Put(details, "distinct", distinct);
  if (!compensated.empty()) {
    PutFlag(details, "proved_but_for_compensated", class_proved);
    Put(details, "compensated", compensated);
    Put(details, "compensated_differs", compensated_differs);
  }
  if (without_rings) Put(details, "not_tried", "rings and groups of this many ranks");
  if (!runner_up.empty()) {
    Put(details, "runner_up", runner_up);
    Put(details, "runner_up_matches", runner_up_matches);
  }
}

}  // namespace plumbline::analysis
