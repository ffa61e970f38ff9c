// Attack on the rules for collectives: families of sums that are not what they seem, each with the
// innocent recordings that resemble them. A few of each; 500 of each if PLUMB_LONG=1. PLUMB_FAMILY
// selects one family by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <numeric>
#include <set>

#include "tests/rules/attack/collective_families.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules::testing {
namespace {

using Values = std::vector<double>;

double Round(double x, DType t, RoundingMode mode = RoundingMode::kNearestEven) {
  return RoundToFormat(x, t, mode);
}
double Away(double x, DType t) {
  return Round(x, t, x < 0 ? RoundingMode::kDown : RoundingMode::kUp);
}

double Total(const Values& x) {
  long double sum = 0;
  for (const double v : x) sum += v;
  return static_cast<double>(sum);
}

std::vector<int> Order(int n, int first) {
  std::vector<int> rows;
  for (int i = 0; i < n; ++i) rows.push_back((first + i) % n);
  return rows;
}

std::vector<int> AnyOrder(int n, Dice& dice) {
  std::vector<int> rows = Order(n, 0);
  std::shuffle(rows.begin(), rows.end(), dice.engine());
  return rows;
}

double Chain(const Values& x, const std::vector<int>& rows, DType t) {
  double sum = x[static_cast<size_t>(rows[0])];
  for (size_t i = 1; i < rows.size(); ++i) sum = Round(sum + x[static_cast<size_t>(rows[i])], t);
  return sum;
}

// Returns a call without results: noise, or a common part with a deviation of 0.3.
Recorded Addends(Dice& dice, std::initializer_list<int> ranks, std::initializer_list<DType> types) {
  Recorded call;
  call.ranks = dice.One(ranks);
  call.input = dice.One(types);
  call.samples = dice.One({128, 256, 512});
  call.kind = dice.Below(2);
  call.average = dice.Below(2) == 1;
  const Sum zero = [](const Values&, const Recorded&, Dice&) { return 0.0; };
  return Filled(call, zero, dice);
}

double Leave(double sum, const Recorded& call) {
  return Round(call.average ? sum / call.ranks : sum, call.input);
}

using EachRank = std::function<double(const Values& x, const Recorded& call, int rank, int column)>;

// Fills the results of every rank.
void Outputs(Recorded& call, const EachRank& result) {
  call.outputs.assign(static_cast<size_t>(call.ranks), {});
  for (int r = 0; r < call.ranks; ++r) {
    for (int i = 0; i < call.samples; ++i)
      call.outputs[static_cast<size_t>(r)].push_back(
          Round(result(call.columns[static_cast<size_t>(i)], call, r, i), call.input));
  }
  call.output = call.outputs[0];
}

// ---- every rank gets another result of one all-reduce ----

constexpr auto kManyRanks = {8, 9, 12, 16, 24, 32, 48, 64};
constexpr auto kAnyDType = {DType::kBF16, DType::kF16, DType::kF32};

Attempt OwnOrders(Dice& dice, bool rotated) {
  Recorded call = Addends(dice, kManyRanks, kAnyDType);
  std::vector<std::vector<int>> orders;
  for (int r = 0; r < call.ranks; ++r)
    orders.push_back(rotated ? Order(call.ranks, r) : AnyOrder(call.ranks, dice));
  Outputs(call, [&](const Values& x, const Recorded& c, int r, int) {
    return Leave(Chain(x, orders[static_cast<size_t>(r)], c.input), c);
  });
  return BatchOf(call);
}

Attempt OwnStores(Dice& dice) {
  Recorded call = Addends(dice, kManyRanks, {DType::kBF16, DType::kF16});
  Outputs(call, [&](const Values& x, const Recorded& c, int, int) {
    return StochasticRound(Total(x) / (c.average ? c.ranks : 1), c.input, dice);
  });
  return BatchOf(call);
}

// Returns results that every rank keeps apart by design, from inputs that are alike or not.
Attempt Apart(Dice& dice, const EachRank& result, bool average) {
  Recorded call = Addends(dice, kManyRanks, kAnyDType);
  call.average = average;
  const double spread = dice.One({1.0, 0.1, 0.01, 0.001});
  for (Values& x : call.columns) {
    const double mean = Total(x) / call.ranks;
    for (double& v : x) v = Round(mean + spread * (v - mean), call.input);
  }
  Outputs(call, result);
  return BatchOf(call);
}

EachRank OverSome(int ranks_of_n, bool whole_minus) {
  return [=](const Values& x, const Recorded& c, int r, int) {
    const int n = whole_minus ? c.ranks - ranks_of_n : std::min(c.ranks, ranks_of_n);
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += x[static_cast<size_t>((r + i) % c.ranks)];
    return c.average ? sum / n : sum;
  };
}

std::vector<ArithmeticFamily> ResultsThatDiffer() {
  constexpr char kRule[] = "precision/replica-divergence";
  return {{"own-start", [](Dice& d) { return OwnOrders(d, true); }, kRule},
          {"own-order", [](Dice& d) { return OwnOrders(d, false); }, kRule},
          {"own-store", [](Dice& d) { return OwnStores(d); }, kRule}};
}

std::vector<ArithmeticFamily> ResultsKeptApart() {
  const auto own = [](const Values& x, const Recorded&, int r, int) {
    return x[static_cast<size_t>(r)];
  };
  // What a ring's reduce-scatter leaves in the buffers: the segments' partial sums.
  const EachRank partial = [](const Values& x, const Recorded& c, int r, int i) {
    const int segment = i * c.ranks / c.samples;
    double sum = 0;
    for (int k = 0; k <= ((r - segment) % c.ranks + c.ranks) % c.ranks; ++k)
      sum += x[static_cast<size_t>((segment + k) % c.ranks)];
    return c.average ? sum / c.ranks : sum;
  };
  const EachRank scaled = [](const Values& x, const Recorded& c, int r, int) {
    return Total(x) * (1 + 0.01 * (r % 7)) / (c.average ? c.ranks : 1);
  };
  const EachRank same = [](const Values& x, const Recorded& c, int, int) {
    return Leave(Total(x), c);
  };
  std::vector<ArithmeticFamily> all;
  for (const bool average : {false, true}) {
    const std::string how = average ? "-averages" : "-sums";
    const auto add = [&](const char* name, const EachRank& result) {
      all.push_back({name + how, [=](Dice& d) { return Apart(d, result, average); }, ""});
    };
    add("own-values", own);
    add("neighbours", OverSome(3, false));
    add("groups-of-eight", OverSome(7, false));
    add("all-but-one", OverSome(1, true));
    add("partial", partial);
    add("scaled-by-rank", scaled);
    add("same", same);
  }
  return all;
}

// ---- fp16 sums that saturate ----

// Returns fp16 addends whose largest sum is `reach` times the largest finite value, or all of them.
Recorded LargeAddends(Dice& dice, double reach) {
  Recorded call = Addends(dice, {4, 8, 16, 32, 64}, {DType::kF16});
  call.average = false;
  double largest = 0;
  for (const Values& x : call.columns) largest = std::max(largest, std::fabs(Total(x)));
  for (Values& x : call.columns) {
    for (double& v : x)
      v = std::clamp(Round(v * reach * 65504 / largest, DType::kF16), -65504.0, 65504.0);
  }
  return call;
}

double Clamp(double x) { return std::clamp(Round(x, DType::kF32), -65504.0, 65504.0); }

Attempt Saturated(Dice& dice, bool hops) {
  Recorded call = LargeAddends(dice, dice.One({1.05, 1.5, 4.0}));
  call.wire_stated = dice.Below(2) == 0;
  const std::vector<int> rows = AnyOrder(call.ranks, dice);
  for (size_t i = 0; i < call.columns.size(); ++i) {
    const Values& x = call.columns[i];
    double sum = x[static_cast<size_t>(rows[0])];
    for (size_t k = 1; hops && k < rows.size(); ++k)
      sum = Round(Clamp(sum + x[static_cast<size_t>(rows[k])]), DType::kF16);
    call.output[i] = hops ? sum : Round(Clamp(Total(x)), DType::kF16);
  }
  return BatchOf(call);
}

// Sums beyond the largest value that were scaled or cut after the sum, or that are below it.
Attempt Large(Dice& dice, const std::function<double(double)>& after, double reach,
              double postscale) {
  Recorded call = LargeAddends(dice, reach);
  call.postscale = postscale;
  for (size_t i = 0; i < call.columns.size(); ++i)
    call.output[i] = Round(after(Total(call.columns[i])), DType::kF16);
  return BatchOf(call);
}

std::vector<ArithmeticFamily> SaturatedSums() {
  constexpr char kRule[] = "precision/collective-overflow";
  return {{"saturated-store", [](Dice& d) { return Saturated(d, false); }, kRule},
          {"saturated-hops", [](Dice& d) { return Saturated(d, true); }, kRule}};
}

std::vector<ArithmeticFamily> LargeSums() {
  const auto scale = [](double factor) { return [=](double s) { return s * factor; }; };
  const auto cut = [](double limit) {
    return [=](double s) { return std::clamp(s, -limit, limit); };
  };
  return {
      {"just-below", [=](Dice& d) { return Large(d, scale(1), 0.99, 1); }, ""},
      {"scaled-after", [=](Dice& d) { return Large(d, scale(0.125), 4, 1); }, ""},
      {"scaled-by-any", [=](Dice& d) { return Large(d, scale(0.2 + 0.04 * d.Uniform()), 4, 1); },
       ""},
      {"scale-declared", [=](Dice& d) { return Large(d, scale(0.0625), 6, 0.0625); }, ""},
      {"cut-after", [=](Dice& d) { return Large(d, cut(1000), 3, 1); }, ""},
  };
}

// ---- biased, and excused by a common factor ----

Attempt CutInputs(Dice& dice, DType to, RoundingMode mode) {
  Recorded call = Addends(dice, {2, 3, 4, 8, 16, 32, 64}, {DType::kF32});
  call.samples = 512;
  call.wire_stated = dice.Below(2) == 0;
  const Sum sum = [=](const Values& x, const Recorded& c, Dice&) {
    Values y;
    for (const double v : x) y.push_back(Round(v, to, mode));
    return Leave(Chain(y, Order(c.ranks, 0), DType::kF32), c);
  };
  call.columns.clear();
  call.output.clear();
  return BatchOf(Filled(call, sum, dice));
}

Attempt Stored(Dice& dice, const std::function<double(double, DType, Dice&)>& store) {
  Recorded call = Addends(dice, {2, 4, 8, 16, 64}, {DType::kBF16, DType::kF16});
  call.samples = 512;
  const Sum sum = [=](const Values& x, const Recorded& c, Dice& d) {
    return store(Round(Total(x), DType::kF32) / (c.average ? c.ranks : 1), c.input, d);
  };
  call.columns.clear();
  call.output.clear();
  return BatchOf(Filled(call, sum, dice));
}

std::vector<ArithmeticFamily> BiasedRoundings() {
  constexpr char kRule[] = "precision/collective-sum";
  constexpr auto kZero = RoundingMode::kTowardZero;
  return {
      {"inputs-cut-to-bf16", [](Dice& d) { return CutInputs(d, DType::kBF16, kZero); }, kRule,
       true},
      {"stored-away-from-zero",
       [](Dice& d) { return Stored(d, [](double s, DType t, Dice&) { return Away(s, t); }); },
       kRule, true},
  };
}

std::vector<ArithmeticFamily> FairRoundings() {
  constexpr auto kNearest = RoundingMode::kNearestEven;
  return {
      {"inputs-rounded-to-bf16", [](Dice& d) { return CutInputs(d, DType::kBF16, kNearest); }, ""},
      {"inputs-rounded-to-fp16", [](Dice& d) { return CutInputs(d, DType::kF16, kNearest); }, ""},
      {"stored-up",
       [](Dice& d) {
         return Stored(
             d, [](double s, DType t, Dice&) { return Round(s, t, RoundingMode::kNearestAway); });
       },
       ""},
      {"stored-stochastically",
       [](Dice& d) {
         return Stored(d, [](double s, DType t, Dice& e) { return StochasticRound(s, t, e); });
       },
       ""},
  };
}

// ---- one rank's part is wrong ----

// Returns steps of one site. `part` returns what rank `odd` adds at one element, from its values of
// this step and of the step before.
Attempt OddRank(Dice& dice, const std::function<double(double now, double before)>& part,
                bool ordered) {
  const Recorded frame = Addends(dice, {4, 6, 8, 12, 16, 32}, kAnyDType);
  const auto odd = static_cast<size_t>(dice.Below(frame.ranks));
  const std::vector<int> rows = ordered ? Order(frame.ranks, 0) : AnyOrder(frame.ranks, dice);
  const bool poisoned = !ordered && dice.Below(4) == 0;  // a NaN in one of twenty elements
  v1::Batch batch;
  std::vector<Values> before = frame.columns;
  for (int step = 0; step < 3; ++step) {
    Recorded call = frame;
    call.columns.clear();
    call.output.clear();
    const Sum sum = [&](const Values& x, const Recorded& c, Dice&) {
      return Leave(Chain(x, rows, c.input), c);
    };
    call = Filled(call, sum, dice);
    for (size_t i = 0; step > 0 && i < call.columns.size(); ++i) {
      if (poisoned && i % 20 == 0) call.columns[i][odd] = NAN;
      Values x = call.columns[i];
      x[odd] = part(x[odd], before[i][odd]);
      call.output[i] = Leave(Chain(x, rows, call.input), call);
    }
    before = call.columns;
    v1::Batch one = BatchOf(call);
    for (v1::Evidence& e : *one.mutable_evidence()) e.set_step(step);
    if (step > 0) one.clear_sources();
    batch.MergeFrom(one);
  }
  return batch;
}

std::vector<ArithmeticFamily> OddRanks() {
  constexpr char kRule[] = "precision/collective-sum";
  std::vector<ArithmeticFamily> all;
  for (const bool ordered : {true, false}) {
    const std::string how = ordered ? "" : "-any-order";
    all.push_back({"sign-flipped" + how,
                   [=](Dice& d) {
                     return OddRank(
                         d, [](double x, double) { return -x; }, ordered);
                   },
                   kRule});
    all.push_back({"stale" + how,
                   [=](Dice& d) {
                     return OddRank(
                         d, [](double, double old) { return old; }, ordered);
                   },
                   kRule, true});
  }
  return all;
}

std::vector<ArithmeticFamily> EvenRanks() {
  return {{"no-odd-rank",
           [](Dice& d) {
             return OddRank(
                 d, [](double x, double) { return x; }, d.Below(2) == 0);
           },
           ""},
          {"rank-weighted",
           [](Dice& d) {
             const double w = 0.3 + 0.6 * d.Uniform();
             return OddRank(
                 d, [w](double x, double) { return w * x; }, true);
           },
           ""}};
}

// ---- the attack ----

int Each() { return std::getenv("PLUMB_LONG") != nullptr ? 500 : 3; }

bool Requested(const std::string& family) {
  const char* one = std::getenv("PLUMB_FAMILY");
  return one == nullptr || family == one;
}

Verdicts JudgedBy(const ArithmeticFamily& family, int n) {
  Dice dice(9000 + 1000 * static_cast<uint64_t>(n) + std::hash<std::string>()(family.name) % 997);
  return VerdictsOn({family.make(dice).batch}, {.rules = {"precision/*"}});
}

// Prints up to three verdicts of each family.
void Print(const std::string& family, int n, const Verdicts& verdicts, const std::string& rule,
           std::map<std::string, int>* printed) {
  if (++(*printed)[family] > 3) return;
  for (const v1::Verdict& v : verdicts) {
    if (!v.rule().starts_with(rule)) continue;
    std::cout << "  " << family << " " << n << ": " << v.rule() << ": "
              << (v.has_finding() ? v.finding().title() + ": " + v.finding().explanation()
                                  : v.reason())
              << "\n";
  }
}

void Find(const std::vector<ArithmeticFamily>& families) {
  std::map<std::string, int> printed;
  for (const ArithmeticFamily& family : families) {
    if (!Requested(family.name)) continue;
    int found = 0;
    for (int n = 0; n < Each(); ++n) {
      const Verdicts verdicts = JudgedBy(family, n);
      const v1::Level wanted = family.warning ? v1::LEVEL_WARNING : v1::LEVEL_ERROR;
      const bool hit = std::any_of(verdicts.begin(), verdicts.end(), [&](const v1::Verdict& v) {
        return v.rule() == family.rule && v.has_finding() && v.finding().level() >= wanted;
      });
      found += hit;
      if (!hit) Print(family.name, n, verdicts, "precision/", &printed);
    }
    std::cout << family.name << ": found " << found << " of " << Each() << "\n";
    EXPECT_GE(100 * found, 95 * Each()) << family.name;
  }
}

void StaySilent(const std::vector<ArithmeticFamily>& families, const std::set<std::string>& but) {
  std::map<std::string, int> printed;
  for (const ArithmeticFamily& family : families) {
    if (!Requested(family.name)) continue;
    int accused = 0;
    for (int n = 0; n < Each(); ++n) {
      const Verdicts verdicts = JudgedBy(family, n);
      const bool hit = std::any_of(verdicts.begin(), verdicts.end(), [&](const v1::Verdict& v) {
        return v.has_finding() && v.finding().level() >= v1::LEVEL_WARNING &&
               !but.contains(v.finding().cause().id());
      });
      accused += hit;
      if (hit) Print(family.name, n, verdicts, "precision/", &printed);
    }
    std::cout << family.name << ": accused " << accused << " of " << Each() << "\n";
    EXPECT_EQ(accused, 0) << family.name;
  }
}

TEST(SumsAttack, ResultsOfOneReductionThatDifferOnEveryRank) { Find(ResultsThatDiffer()); }
TEST(SumsAttack, ResultsThatRanksKeepApart) { StaySilent(ResultsKeptApart(), {"not-the-sum"}); }
TEST(SumsAttack, SaturatedSums) { Find(SaturatedSums()); }
TEST(SumsAttack, LargeSums) { StaySilent(LargeSums(), {}); }
TEST(SumsAttack, BiasedRoundings) { Find(BiasedRoundings()); }
TEST(SumsAttack, FairRoundings) { StaySilent(FairRoundings(), {}); }
TEST(SumsAttack, OddRanks) { Find(OddRanks()); }
TEST(SumsAttack, EvenRanks) { StaySilent(EvenRanks(), {"not-the-sum"}); }

}  // namespace
}  // namespace plumbline::rules::testing
