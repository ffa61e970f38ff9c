// Tests models as text: complete after parsing, small, and always untrusted.
#include "analysis/sums/model_text.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <iostream>
#include <random>

#include "absl/strings/escaping.h"
#include "tests/analysis/sums/simulated_sum.h"

namespace plumbline::sums {
namespace {

SummationTree RandomTree(std::mt19937_64& rng, int n) {
  SummationTree tree(n);
  std::vector<int> open;
  for (int i = 0; i < n; ++i) open.push_back(i);
  while (open.size() > 1) {
    std::shuffle(open.begin(), open.end(), rng);
    const size_t take = std::min<size_t>(open.size(), rng() % 4 == 0 ? 2 + rng() % 5 : 2);
    const std::vector<int> children(open.end() - static_cast<int64_t>(take), open.end());
    open.resize(open.size() - take);
    open.push_back(tree.Join(children));
  }
  return tree;
}

SumModel RandomModel(std::mt19937_64& rng) {
  const int n = 2 + static_cast<int>(rng() % 200);
  const DType dtypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kE4M3};
  SumModel m;
  m.kind = static_cast<Kind>(rng() % 4);
  m.input = dtypes[rng() % 5];
  m.output = dtypes[rng() % 4];
  m.tree = RandomTree(rng, n);
  for (int i = 0; i < m.tree.nodes(); ++i)
    m.formats.push_back(SumFormatOfPrecision(rng() % 3 == 0 ? 53 : 24));
  for (int i = 0; i < n; ++i) m.fused.push_back(rng() % 2);
  m.product = SumFormatOf(m.input);
  const auto rounding = [&] { return static_cast<RoundingMode>(rng() % 5); };
  Arithmetic& a = m.arithmetic;
  a.rounding = rounding();
  if (rng() % 2) a.aligned = Alignment{static_cast<int>(rng() % 40), rng() % 2 == 0};
  if (rng() % 2) a.block = Alignment{static_cast<int>(rng() % 40), rng() % 2 == 0};
  a.block_rounding = rounding();
  a.store = rounding();
  a.cut_a = {static_cast<int>(rng() % 12), rounding()};
  a.cut_b = {static_cast<int>(rng() % 12), rounding()};
  a.flush_inputs = rng() % 2;
  a.flush_results = rng() % 2;
  return m;
}

TEST(ModelTextTest, ComesBackWhole) {
  std::mt19937_64 rng(3);
  for (int round = 0; round < 300; ++round) {
    const SumModel model = RandomModel(rng);
    const std::string text = ModelText(model);
    const auto again = ParseModel(text);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(ModelText(*again), text);
    EXPECT_EQ(again->tree.Hash(), model.tree.Hash());
    EXPECT_EQ(again->formats, model.formats);
    EXPECT_EQ(again->fused, model.fused);
    EXPECT_EQ(again->arithmetic.aligned, model.arithmetic.aligned);
    EXPECT_EQ(again->arithmetic.cut_b, model.arithmetic.cut_b);
    std::vector<double> a, b;
    for (int i = 0; i < model.tree.leaves(); ++i) {
      a.push_back(RoundToFormat(std::ldexp(static_cast<double>(rng() % 1000), -9), model.input));
      b.push_back(RoundToFormat(static_cast<double>(rng() % 7) - 3, model.input));
    }
    const double x = Replay(model).Run(a, b), y = Replay(*again).Run(a, b);
    EXPECT_TRUE(x == y || (std::isnan(x) && std::isnan(y))) << x << " " << y;
  }
}

TEST(ModelTextTest, TreesOfLibrariesAreSmall) {
  for (const SummationTree& tree : {LeftFold(4096), Pairwise(4096), Lanes(4096, 32)}) {
    const SumModel model = PlainModel(BareTarget(Kind::kDot, 4096, DType::kF32, DType::kF32), tree,
                                      SumFormatOf(DType::kF32), true);
    EXPECT_LT(ModelText(model).size(), 4096u) << TreeInWords(tree);
  }
}

// Tests that a deep fold is parsed and replayed without deep recursion.
TEST(ModelTextTest, AMillionAddends) {
  const int n = kMostAddends;
  const SumModel model = PlainModel(BareTarget(Kind::kSum, n, DType::kF32, DType::kF32),
                                    LeftFold(n), SumFormatOf(DType::kF32), false);
  const auto again = ParseModel(ModelText(model));
  ASSERT_TRUE(again.ok()) << again.status();
  const std::vector<double> ones(static_cast<size_t>(n), 1.0);
  EXPECT_EQ(Replay(*again).Run(ones, ones), n);
}

// Tests damaged text: the result is an error, or a model that can be replayed and serialised again.
TEST(ModelTextTest, DamagedTextIsRefusedOrWhole) {
  std::mt19937_64 rng(4);
  int refused = 0, whole = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string packed;
    ASSERT_TRUE(absl::Base64Unescape(ModelText(RandomModel(rng)), &packed));
    std::string bytes(ZSTD_getFrameContentSize(packed.data(), packed.size()), '\0');
    ASSERT_EQ(ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size()),
              bytes.size());
    for (uint64_t i = 0; i <= rng() % 3; ++i) {
      if (rng() % 4 == 0) {
        bytes.resize(rng() % bytes.size() + 1);
      } else {
        bytes[rng() % bytes.size()] = static_cast<char>(rng());
      }
    }
    std::string again(ZSTD_compressBound(bytes.size()), '\0');
    again.resize(ZSTD_compress(again.data(), again.size(), bytes.data(), bytes.size(), 1));
    const auto model = ParseModel(absl::Base64Escape(again));
    if (!model.ok()) {
      ++refused;
      EXPECT_NE(std::string(model.status().message()).find("expected a sum's model"),
                std::string::npos);
      continue;
    }
    ++whole;
    const std::vector<double> ones(static_cast<size_t>(model->tree.leaves()), 1.0);
    Replay(*model).Run(ones, ones);
    EXPECT_TRUE(ParseModel(ModelText(*model)).ok());
  }
  std::cout << refused << " refused, " << whole << " whole\n";
  EXPECT_GT(refused, 1000);
  for (const char* text : {"", "AAAA", "not base 64!", "KLUv/SAAAQAA"})
    EXPECT_FALSE(ParseModel(text).ok()) << text;
}

}  // namespace
}  // namespace plumbline::sums
