// Tests the text form of orders.
#include <gtest/gtest.h>

#include "tests/analysis/sums/simulated_sum.h"

namespace plumbline::sums {
namespace {

TEST(TreeWordsTest, Patterns) {
  EXPECT_EQ(TreeInWords(LeftFold(4096)), "left fold of 4096 terms");
  EXPECT_EQ(TreeInWords(RightFold(100)), "right fold of 100 terms, last first");
  EXPECT_EQ(TreeInWords(Pairwise(4096)), "pairwise sum of 4096 terms");
  EXPECT_EQ(TreeInWords(Pairwise(1000)), "pairwise sum of 1000 terms");
  EXPECT_EQ(TreeInWords(Lanes(4096, 8)),
            "pairwise join of 8 parts 1 apart, each: left fold of 512 terms, stride 8");
  EXPECT_EQ(TreeInWords(BlockChain(64, 8)), "left fold of 8 parts 8 apart, each: 8 terms at once");
  EXPECT_EQ(TreeInWords(BlockChain(64, 64)), "64 terms at once");
}

TEST(TreeWordsTest, BlocksAndTails) {
  // Blocks of 16, each a left fold, added sequentially, and a tail of three.
  SummationTree tree(67);
  int sum = -1;
  for (int block = 0; block < 4; ++block) {
    int part = 16 * block;
    for (int i = 1; i < 16; ++i) part = tree.Join({part, 16 * block + i});
    sum = sum < 0 ? part : tree.Join({sum, part});
  }
  for (int i = 64; i < 67; ++i) sum = tree.Join({sum, i});
  EXPECT_EQ(TreeInWords(tree),
            "(fold of 4 parts 16 apart, each: left fold of 16 terms from 0, then 3 terms from 64)");
}

TEST(TreeWordsTest, IrregularTreesStayShort) {
  const SummationTree tree = RandomTree(2000, .2, 5);
  EXPECT_LE(TreeInWords(tree).size(), 600u);
  const std::string outline = TreeAsOutline(tree, 20);
  EXPECT_EQ(std::count(outline.begin(), outline.end(), '\n'), 21);
}

TEST(TreeWordsTest, HashIsOfTheShapeAlone) {
  SummationTree tree(4);
  const int right = tree.Join({3, 2});
  tree.Join({right, tree.Join({1, 0})});
  EXPECT_EQ(tree.Hash(), Pairwise(4).Hash());
  EXPECT_NE(LeftFold(4).Hash(), Pairwise(4).Hash());
  EXPECT_NE(LeftFold(4).Hash(), RightFold(4).Hash());
  EXPECT_NE(BlockChain(4, 4).Hash(), Pairwise(4).Hash());
}

}  // namespace
}  // namespace plumbline::sums
