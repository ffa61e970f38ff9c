// Tests complete fingerprints: every simulated listed arithmetic is named and replayed; unlisted
// arithmetic is never named.
#include "analysis/sums/fingerprint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/sums/contract.h"
#include "tests/analysis/sums/simulated_sum.h"

namespace plumbline::sums {
namespace {

using Values = absl::Span<const double>;

Fingerprint Take(const Target& target, int samples = 100) {
  FingerprintOptions options;
  options.samples = samples;
  const auto fingerprint = TakeFingerprint(target, options);
  EXPECT_TRUE(fingerprint.ok()) << fingerprint.status();
  return fingerprint.ok() ? *fingerprint : Fingerprint();
}

struct Formats {
  Kind kind;
  DType input, accumulator, output;
};

constexpr Formats kFormats[] = {{Kind::kSum, DType::kF32, DType::kF32, DType::kF32},
                                {Kind::kSum, DType::kF64, DType::kF64, DType::kF64},
                                {Kind::kSum, DType::kF32, DType::kF64, DType::kF32},
                                {Kind::kSum, DType::kBF16, DType::kF32, DType::kBF16},
                                {Kind::kSum, DType::kBF16, DType::kBF16, DType::kBF16},
                                {Kind::kSum, DType::kF16, DType::kF32, DType::kF16},
                                {Kind::kSum, DType::kF16, DType::kF16, DType::kF16},
                                {Kind::kDot, DType::kF32, DType::kF32, DType::kF32},
                                {Kind::kDot, DType::kF64, DType::kF64, DType::kF64},
                                {Kind::kGemm, DType::kBF16, DType::kF32, DType::kF32},
                                {Kind::kGemm, DType::kF16, DType::kF32, DType::kF16},
                                {Kind::kGemm, DType::kBF16, DType::kBF16, DType::kBF16}};

std::string Name(const Formats& f) {
  return std::string(KindName(f.kind)) + " " + DTypeName(f.input) + " in " +
         DTypeName(f.accumulator) + " to " + DTypeName(f.output);
}

void ExpectFound(const SumModel& model, const std::string& name) {
  const Fingerprint found = Take(TargetOf(model));
  EXPECT_EQ(found.verdict, Verdict::kVerified) << name << "\n" << FingerprintText(found);
  EXPECT_EQ(found.tree_hash, model.tree.Hash()) << name << "\n" << FingerprintText(found);
  EXPECT_EQ(found.matches, found.samples);
}

TEST(FingerprintTest, FormatsTreesAndRoundings) {
  for (const Formats& f : kFormats) {
    for (const int n : {5, 40}) {
      for (const SummationTree& tree : {LeftFold(n), RightFold(n), Pairwise(n), Lanes(n, 4)}) {
        for (const RoundingMode mode :
             {RoundingMode::kNearestEven, RoundingMode::kNearestAway, RoundingMode::kTowardZero,
              RoundingMode::kDown, RoundingMode::kUp}) {
          SumModel model = PlainModel(BareTarget(f.kind, n, f.input, f.output), tree,
                                      SumFormatOf(f.accumulator), true);
          model.arithmetic.rounding = mode;
          const std::string name = Name(f) + ", " + TreeInWords(tree) + ", " + RoundingName(mode);
          const Fingerprint found = Take(TargetOf(model));
          ASSERT_EQ(found.verdict, Verdict::kVerified) << name << "\n" << FingerprintText(found);
          EXPECT_EQ(found.tree_hash, tree.Hash()) << name;
          // Sums in f64 of f32 addends: the accumulator and its rounding are visible.
          EXPECT_EQ(found.model.arithmetic.rounding, mode) << name << "\n"
                                                           << FingerprintText(found);
          EXPECT_EQ(found.model.accumulator().precision, FormatOf(f.accumulator).precision) << name;
        }
      }
    }
  }
}

TEST(FingerprintTest, ProductsRoundedOrFused) {
  for (const DType t : {DType::kF32, DType::kF64}) {
    for (const bool fused : {false, true}) {
      SumModel model =
          PlainModel(BareTarget(Kind::kDot, 50, t, t), Lanes(50, 8), SumFormatOf(t), fused);
      if (fused)
        std::fill(model.fused.begin(), model.fused.begin() + 8, 0);  // the first of the chains
      const Fingerprint found = Take(TargetOf(model));
      ASSERT_EQ(found.verdict, Verdict::kVerified) << FingerprintText(found);
      EXPECT_EQ(found.model.fused, model.fused) << FingerprintText(found);
      ASSERT_FALSE(found.rivals.empty());
      for (const Scored& rival : found.rivals)
        EXPECT_LT(rival.matches, found.samples) << rival.words;
    }
  }
}

TEST(FingerprintTest, AlignedAdders) {
  for (const int extra : {-1, 0, 1, 2}) {
    for (const bool floor : {false, true}) {
      SumModel model = PlainModel(BareTarget(Kind::kGemm, 33, DType::kBF16, DType::kF32),
                                  LeftFold(33), SumFormatOf(DType::kF32), true);
      model.arithmetic.aligned = Alignment{24 + extra, floor};
      model.arithmetic.rounding = RoundingMode::kTowardZero;
      ExpectFound(model, "aligned " + std::to_string(extra) + (floor ? " floor" : ""));
    }
  }
}

TEST(FingerprintTest, TensorCoreBlocks) {
  for (const DType input : {DType::kF16, DType::kBF16, DType::kE4M3}) {
    for (const int fraction_bits : {13, 23, 24, 25}) {
      for (const int block : {4, 8, 16}) {
        for (const RoundingMode mode : {RoundingMode::kTowardZero, RoundingMode::kNearestEven}) {
          SumModel model = PlainModel(BareTarget(Kind::kGemm, 64, input, DType::kF32),
                                      BlockChain(64, block), SumFormatOf(DType::kF32), true);
          model.arithmetic.block = Alignment{fraction_bits, false};
          model.arithmetic.block_rounding = mode;
          if (input == DType::kE4M3 && fraction_bits > 13) continue;  // range too small to mask
          ExpectFound(model, "F " + std::to_string(fraction_bits) + " g " + std::to_string(block));
        }
      }
    }
  }
}

TEST(FingerprintTest, CutInputsAndFlushedSubnormals) {
  for (const InputCut cut :
       {InputCut{11, RoundingMode::kNearestEven}, InputCut{11, RoundingMode::kNearestAway},
        InputCut{11, RoundingMode::kTowardZero}, InputCut{8, RoundingMode::kNearestEven}}) {
    SumModel model = PlainModel(BareTarget(Kind::kGemm, 20, DType::kF32, DType::kF32), LeftFold(20),
                                SumFormatOf(DType::kF32), true);
    model.arithmetic.cut_a = model.arithmetic.cut_b = cut;
    const Fingerprint found = Take(TargetOf(model));
    ASSERT_EQ(found.verdict, Verdict::kVerified) << FingerprintText(found);
    EXPECT_EQ(found.model.arithmetic.cut_a, cut) << FingerprintText(found);
    EXPECT_EQ(found.model.arithmetic.cut_b, cut) << FingerprintText(found);
  }
  for (const int flags : {1, 2, 3}) {
    SumModel model = PlainModel(BareTarget(Kind::kDot, 20, DType::kF32, DType::kF32), LeftFold(20),
                                SumFormatOf(DType::kF32), true);
    model.arithmetic.flush_inputs = (flags & 1) != 0;
    model.arithmetic.flush_results = (flags & 2) != 0;
    const Fingerprint found = Take(TargetOf(model));
    ASSERT_EQ(found.verdict, Verdict::kVerified) << FingerprintText(found);
    EXPECT_EQ(found.model.arithmetic.flush_inputs, model.arithmetic.flush_inputs);
    EXPECT_EQ(found.model.arithmetic.flush_results, model.arithmetic.flush_results);
  }
}

// Tests direct code without a replay: lanes of fused multiplies in f32, with a tail added in f64.
TEST(FingerprintTest, DotWithATailInDouble) {
  const Target target = TargetOf(Kind::kDot, 70, DType::kF32, DType::kF32, [](Values a, Values b) {
    float lanes[8] = {};
    for (int i = 0; i < 64; ++i) {
      lanes[i % 8] = std::fma(static_cast<float>(a[i]), static_cast<float>(b[i]), lanes[i % 8]);
    }
    const float body = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                       ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
    double tail = 0;
    for (int i = 64; i < 70; ++i) {
      const float product = static_cast<float>(a[i]) * static_cast<float>(b[i]);
      tail += static_cast<double>(product);
    }
    return static_cast<double>(static_cast<float>(tail + static_cast<double>(body)));
  });
  const Fingerprint found = Take(target, 250);
  ASSERT_EQ(found.verdict, Verdict::kVerified) << FingerprintText(found);
  EXPECT_NE(found.arithmetic.find("f64 at 6 nodes"), std::string::npos) << found.arithmetic;
  EXPECT_NE(found.arithmetic.find("rounded to f32 in 14 of 70"), std::string::npos)
      << found.arithmetic;
}

TEST(FingerprintTest, ExactSums) {
  const Target target = TargetOf(Kind::kSum, 100, DType::kF32, DType::kF32, [](Values a, Values) {
    ExactSum sum;
    for (const double x : a) sum.Add(x);
    return sum.RoundTo(DType::kF32);
  });
  const Fingerprint found = Take(target);
  EXPECT_EQ(found.verdict, Verdict::kVerified) << FingerprintText(found);
  EXPECT_EQ(found.arithmetic, "exact, rounded once, nearest-even");
}

TEST(FingerprintTest, TwoAddends) {
  const Target target =
      TargetOf(Kind::kAllReduce, 2, DType::kBF16, DType::kBF16,
               [](Values a, Values) { return RoundToFormat(a[0] + a[1], DType::kBF16); });
  EXPECT_EQ(Take(target).verdict, Verdict::kVerified);
}

float Kahan(Values a) {
  float sum = 0;
  float lost = 0;
  for (const double x : a) {
    const float y = static_cast<float>(x) - lost;
    const float t = sum + y;
    lost = (t - sum) - y;
    sum = t;
  }
  return sum;
}

double Neumaier(Values a) {
  float sum = 0;
  float lost = 0;
  for (const double x : a) {
    const auto f = static_cast<float>(x);
    const float t = sum + f;
    lost += std::abs(sum) >= std::abs(f) ? (sum - t) + f : (f - t) + sum;
    sum = t;
  }
  return static_cast<double>(sum + lost);
}

// Returns a sum of blocks whose rounding depends on the parity of the term: unlisted.
double Alternating(Values a) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum = RoundExact(SumOf(sum, a[i]), SumFormatOf(DType::kF32),
                     i % 2 ? RoundingMode::kUp : RoundingMode::kDown);
  }
  return sum;
}

// Returns the sum of a three-way adder that first rounds its two small addends to f32 + 3 bits: a
// tree of two roundings that no listed node has.
double ThreeWay(Values a) {
  SumFormat wide = SumFormatOf(DType::kF64);
  wide.precision = 27;
  double sum = 0;
  for (size_t i = 0; i + 1 < a.size(); i += 2) {
    const double pair = RoundExact(SumOf(a[i], a[i + 1]), wide, RoundingMode::kTowardZero);
    sum = RoundExact(SumOf(sum, pair), SumFormatOf(DType::kF32),
                     i % 4 ? RoundingMode::kUp : RoundingMode::kNearestEven);
  }
  return sum;
}

TEST(FingerprintTest, UnlistedArithmeticHasNoName) {
  const std::function<double(Values, Values)> unlisted[] = {
      [](Values a, Values) { return static_cast<double>(Kahan(a)); },
      [](Values a, Values) { return Neumaier(a); }, [](Values a, Values) { return Alternating(a); },
      [](Values a, Values) { return ThreeWay(a); }};
  int number = 0;
  for (const auto& sum : unlisted) {
    const Fingerprint found = Take(TargetOf(Kind::kSum, 200, DType::kF32, DType::kF32, sum), 250);
    EXPECT_TRUE(found.verdict == Verdict::kOrderOnly || found.verdict == Verdict::kNoOrder)
        << number << "\n"
        << FingerprintText(found);
    EXPECT_FALSE(found.evidence.empty());
    EXPECT_TRUE(ContractOf(found).arithmetic.empty());
    ++number;
  }
}

// Tests that if one addition of a random tree differs from the others, its results differ and no
// arithmetic is named.
TEST(FingerprintTest, OneOddAdditionIsNeverOverlooked) {
  constexpr int kCases = 10000;
  int named = 0;
  for (int k = 0; k < kCases; ++k) {
    Random random(static_cast<uint64_t>(k));
    const int n = 6 + random.Below(12);
    const SummationTree tree = RandomTree(n, 0, static_cast<uint64_t>(k));
    const int odd = n + random.Below(n - 1);
    const int fault = random.Below(4);
    const auto sum = [=](Values a, Values) {
      std::vector<double> v(a.begin(), a.end());
      for (int i = n; i <= tree.root(); ++i) {
        const Exact s = SumOf(v[static_cast<size_t>(tree.node(i).children[0])],
                              v[static_cast<size_t>(tree.node(i).children[1])]);
        constexpr RoundingMode kFaults[] = {RoundingMode::kUp, RoundingMode::kDown,
                                            RoundingMode::kTowardZero, RoundingMode::kNearestEven};
        const SumFormat format = SumFormatOf(DType::kF32);
        double y = RoundExact(s, format, i == odd ? kFaults[fault] : RoundingMode::kNearestEven);
        if (i == odd && fault == 3 && s.tail == 0 && y != s.head)
          y = std::nextafterf(static_cast<float>(y), 0.0F);
        v.push_back(y);
      }
      return v.back();
    };
    const Fingerprint found = Take(TargetOf(Kind::kSum, n, DType::kF32, DType::kF32, sum), 60);
    named += found.verdict == Verdict::kVerified ? 1 : 0;
    if (found.verdict == Verdict::kVerified && named < 4) {
      ADD_FAILURE() << "fault " << fault << " at node " << odd << " of " << n << "\n"
                    << FingerprintText(found);
    }
  }
  EXPECT_EQ(named, 0) << "of " << kCases;
}

TEST(FingerprintTest, StochasticRoundingIsRefusedWithTwoResults) {
  Random random(3);
  const Target target = TargetOf(Kind::kSum, 64, DType::kBF16, DType::kBF16, [&](Values a, Values) {
    double sum = 0;
    for (const double x : a) {
      const double s = sum + x;
      const double unit = UlpOf(s, DType::kBF16);
      sum = std::isfinite(s) ? std::floor(s / unit + random.Uniform()) * unit : s;
    }
    return sum;
  });
  const Fingerprint found = Take(target);
  EXPECT_EQ(found.verdict, Verdict::kNondeterministic);
  EXPECT_NE(found.evidence.find("the same addends gave"), std::string::npos) << found.evidence;
  EXPECT_TRUE(found.order.empty());
}

TEST(FingerprintTest, NonFiniteAnswersAndFailures) {
  for (const double answer : {std::nan(""), HUGE_VAL, -HUGE_VAL, 0.0}) {
    const Fingerprint found = Take(
        TargetOf(Kind::kSum, 64, DType::kF32, DType::kF32, [=](Values, Values) { return answer; }));
    EXPECT_EQ(found.verdict, Verdict::kNoOrder) << answer << "\n" << FingerprintText(found);
  }
  Target target = BareTarget(Kind::kSum, 8, DType::kF32, DType::kF32);
  EXPECT_TRUE(absl::IsInvalidArgument(TakeFingerprint(target, {}).status()));
  target.call = [](Values, Values, double*) { return absl::FailedPreconditionError("broken"); };
  EXPECT_EQ(TakeFingerprint(target, {}).status().message(), "broken");
  target.n = 1;
  EXPECT_TRUE(absl::IsInvalidArgument(TakeFingerprint(target, {}).status()));
}

TEST(FingerprintTest, BatchesThatChangeTheResult) {
  Target target = TargetOf(PlainModel(BareTarget(Kind::kGemm, 32, DType::kF32, DType::kF32),
                                      LeftFold(32), SumFormatOf(DType::kF32), true));
  const auto alone = target.call;
  const Target other = TargetOf(PlainModel(BareTarget(Kind::kGemm, 32, DType::kF32, DType::kF32),
                                           Pairwise(32), SumFormatOf(DType::kF32), true));
  target.batched = [=](int batch, Values a, Values b, double* y) {
    return batch < 16 ? alone(a, b, y) : other.call(a, b, y);
  };
  const Fingerprint found = Take(target);
  EXPECT_NE(found.tests.back().result.find("in a batch of 16"), std::string::npos)
      << FingerprintText(found);
}

TEST(ContractTest, RoundTripAndDifferences) {
  const Formats f = kFormats[7];
  const auto model = PlainModel(BareTarget(f.kind, 64, f.input, f.output), Lanes(64, 8),
                                SumFormatOf(f.accumulator), false);
  const Fingerprint found = Take(TargetOf(model));
  const Contract contract = ContractOf(found);
  const std::string text = ContractToml(contract);
  const auto read = ParseContract(text, "contract.toml");
  ASSERT_TRUE(read.ok()) << read.status() << "\n" << text;
  EXPECT_EQ(*read, contract) << text;
  EXPECT_EQ(ContractToml(*read), text);
  EXPECT_TRUE(ContractDifferences(contract, *read).empty());
  auto changed = model;
  changed.fused.assign(64, 1);
  const auto differences = ContractDifferences(contract, ContractOf(Take(TargetOf(changed))));
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].substr(0, 10), "arithmetic");
}

TEST(ContractTest, TheSeedDoesNotMatter) {
  const auto model = PlainModel(BareTarget(Kind::kDot, 96, DType::kF32, DType::kF32), Lanes(96, 8),
                                SumFormatOf(DType::kF32), true);
  FingerprintOptions options;
  options.samples = 50;
  const auto first = TakeFingerprint(TargetOf(model), options);
  options.seed = 9;
  const auto second = TakeFingerprint(TargetOf(model), options);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(ContractToml(ContractOf(*first)), ContractToml(ContractOf(*second)));
}

TEST(ContractTest, RefusesDamage) {
  const auto model = PlainModel(BareTarget(Kind::kSum, 16, DType::kF32, DType::kF32), LeftFold(16),
                                SumFormatOf(DType::kF32), true);
  const std::string text = ContractToml(ContractOf(Take(TargetOf(model))));
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string copy = text;
    const size_t at = copy.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return copy.replace(at, from.size(), to);
  };
  for (const std::string& damaged :
       {std::string(""), std::string("schema = 3"), text.substr(0, text.size() / 2),
        replaced("contract/1", "contract/9"), replaced("n = 16", "n = 'x'"),
        replaced("kind = 'sum'", "kind = 'product'"), replaced("[order]", "[ordre]"),
        replaced("n = 16", "n = 16\nm = 2"), replaced("n = 16", "n = 99999999999")}) {
    const auto read = ParseContract(damaged, "c.toml");
    ASSERT_FALSE(read.ok()) << damaged;
    EXPECT_EQ(read.status().message().substr(0, 7), "c.toml:") << read.status();
  }
}

}  // namespace
}  // namespace plumbline::sums
