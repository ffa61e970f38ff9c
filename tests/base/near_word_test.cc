#include "base/near_word.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

TEST(NearWord, CountsEdits) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("grcp", "grpc"), 1u) << "neighbours that are swapped are one mistake";
  EXPECT_EQ(EditDistance("ca", "abc"), 3u) << "and stay swapped";
}

TEST(NearWord, AThirdOfTheLongerWordMayBeWrong) {
  const std::vector<std::string> words = {"note", "warning", "error"};
  EXPECT_EQ(NearestWord("erorr", words), "error");
  EXPECT_EQ(NearestWord("warn", words), "") << "3 of 7";
  EXPECT_EQ(NearestWord("warni", words), "warning");
  EXPECT_EQ(NearestWord("notte", words), "note");
  EXPECT_EQ(NearestWord("x", words), "");
  EXPECT_EQ(NearestWord("", words), "");
  EXPECT_EQ(DidYouMean("nite", words), "; did you mean \"note\"?");
  EXPECT_EQ(DidYouMean("loud", words), "");
}

TEST(NearWord, TheFirstOfTheNearest) {
  const std::vector<std::string> words = {"lane", "line", "link"};
  EXPECT_EQ(NearestWord("lone", words), "lane");
  EXPECT_EQ(NearestWord("link", words), "link");
}

}  // namespace
}  // namespace plumbline
