// The JSON cursor compared with nlohmann's parser and the C library: what is JSON, the value of a
// number, and where a text stops being JSON.
#include "audit/readers/input/json_cursor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

namespace plumbline::audit {
namespace {

bool Accepts(const std::string& text) {
  JsonCursor cursor(text);
  return cursor.Skip() && cursor.AtEnd();
}

TEST(JsonCursor, AcceptsWhatAnotherParserAccepts) {
  std::mt19937 random(1);
  static constexpr const char* kPieces[] = {"{",          "}",
                                            "[",          "]",
                                            ",",          ":",
                                            "\"a\"",      "\"\\u00e9\\n\"",
                                            "1",          "-0",
                                            "0.5",        "1e5 ",
                                            "-2E-3",      "true",
                                            "false",      "null",
                                            " ",          "\t",
                                            "\"k\":",     "[1,2]",
                                            "{\"a\":[]}", "\"\\ud83d\\ude00\"",
                                            "01",         "1.",
                                            "\"\\x\"",    "tru"};
  int accepted = 0;
  for (int i = 0; i < 200000; ++i) {
    std::string text;
    for (uint32_t n = 1 + random() % 7; n > 0; --n) text += kPieces[random() % std::size(kPieces)];
    const bool other = nlohmann::json::accept(text);
    ASSERT_EQ(Accepts(text), other) << text;
    accepted += other;
  }
  EXPECT_GT(accepted, 10000);
}

TEST(JsonCursor, MutatedDocumentsToo) {
  std::mt19937 random(2);
  const std::string good =
      R"({"step": 3, "s": "a\"bA", "t": [1, -2, 3.5e2], "n": {"x": null, "y": [true, []]}})";
  ASSERT_TRUE(Accepts(good));
  static constexpr char kOdd[] = "{}[],:\"\\-+.eE09tn x\n";
  for (int i = 0; i < 200000; ++i) {
    std::string text = good;
    for (uint32_t n = 1 + random() % 2; n > 0; --n) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = kOdd[random() % (sizeof kOdd - 1)];
      } else {
        text.erase(at, 1 + random() % 3);
      }
      if (text.empty()) text = "1";
    }
    ASSERT_EQ(Accepts(text), nlohmann::json::accept(text)) << text;
  }
}

double ReadOne(const std::string& text, NumberText* written) {
  std::vector<double> values;
  std::vector<OddElement> odd;
  // Once near the end of the text, once far from it: there are two ways to read a number.
  const std::string list = "[" + text + ", " + text + "]";
  for (const std::string& whole : {list, list + std::string(64, ' ')}) {
    NumberText again;
    JsonCursor cursor(whole);
    EXPECT_TRUE(cursor.ReadNumbers(&values, &again, &odd) && cursor.AtEnd()) << text;
    EXPECT_TRUE(whole == list || again == *written) << text;
    *written = again;
  }
  EXPECT_TRUE(odd.empty() && values.size() == 4) << text;
  for (const double x : values)
    EXPECT_EQ(std::bit_cast<uint64_t>(x), std::bit_cast<uint64_t>(values[0])) << text;
  return values.empty() ? 0 : values[0];
}

TEST(JsonCursor, NumbersAreTheNearestDoubles) {
  std::mt19937_64 random(3);
  static constexpr const char* kFormats[] = {"%.17g", "%.9g",  "%.6f", "%.3e",
                                             "%.15g", "%.25f", "%g"};
  for (int i = 0; i < 300000; ++i) {
    double x = std::bit_cast<double>(random());
    if (i % 2 == 0)
      x = std::ldexp(static_cast<double>(random() >> 11), -53 - static_cast<int>(random() % 20));
    if (!std::isfinite(x) || (i % 7 >= 2 && std::fabs(x) > 1e20)) x = -0.25;
    char text[512];
    std::snprintf(text, sizeof text, kFormats[i % std::size(kFormats)], x);
    if (std::string_view(text).size() > 400) continue;
    NumberText written;
    ASSERT_EQ(std::bit_cast<uint64_t>(ReadOne(text, &written)),
              std::bit_cast<uint64_t>(std::strtod(text, nullptr)))
        << text;
  }
}

// Lists of texts that look like numbers: the same grammar and values as another parser.
TEST(JsonCursor, ListsOfNumbersAgainstAnotherParser) {
  std::mt19937 random(4);
  static constexpr char kSigns[] = "0123456789.-+eE ";
  int good = 0;
  for (int i = 0; i < 200000; ++i) {
    std::string list = "[";
    for (uint32_t n = 1 + random() % 3; n > 0; --n) {
      std::string text = std::to_string(random() % 2000000);
      if (random() % 2 == 0) text += "." + std::to_string(random() >> (random() % 32));
      if (random() % 2 == 0) text.insert(0, "-");
      if (random() % 8 == 0) text[random() % text.size()] = kSigns[random() % (sizeof kSigns - 1)];
      list += text + (n > 1 ? random() % 2 == 0 ? "," : ", " : "]");
    }
    if (random() % 2 == 0) list += std::string(40, ' ');
    std::vector<double> values;
    std::vector<int64_t> integers;
    std::vector<OddElement> odd;
    NumberText written;
    JsonCursor cursor(list), whole(list);
    const bool read = cursor.ReadNumbers(&values, &written, &odd) && cursor.AtEnd();
    // The other parser refuses overflows.
    if (std::any_of(values.begin(), values.end(), [](double x) { return std::isinf(x); })) continue;
    const auto other = nlohmann::json::parse(list, nullptr, false);
    ASSERT_EQ(read && odd.empty(), !other.is_discarded()) << list;
    if (other.is_discarded()) continue;
    ++good;
    ASSERT_EQ(values, other.get<std::vector<double>>()) << list;
    ASSERT_TRUE(whole.ReadIntegers(&integers, &odd)) << list;
    for (size_t j = 0; j < values.size(); ++j) {
      if (std::fabs(values[j]) > 0x1p53) continue;  // here an integer is more exact than a double
      const bool is_whole = std::trunc(values[j]) == values[j];
      ASSERT_EQ(integers[j], is_whole ? static_cast<int64_t>(values[j]) : JsonCursor::kNoInteger)
          << list;
    }
  }
  EXPECT_GT(good, 100000);
}

TEST(JsonCursor, ReportsHowNumbersWereWritten) {
  const auto written = [](const std::string& text) {
    NumberText w;
    ReadOne(text, &w);
    return w;
  };
  EXPECT_EQ(written("-1.25"), (NumberText{2, false}));
  EXPECT_EQ(written("0"), (NumberText{0, false}));
  EXPECT_EQ(written("1.50e-05"), (NumberText{7, false}));
  EXPECT_EQ(written("2.5e1"), (NumberText{0, false}));
  EXPECT_EQ(written("-0.12345678901234"), (NumberText{14, false}));
  EXPECT_EQ(written("-1.23456789012345").full, true);
  EXPECT_EQ(written("-0.0123456789012345678").full, true);
  EXPECT_EQ(written("123456789012345678901234567890").full, true);
}

TEST(JsonCursor, BeyondTheRangeOfDoubles) {
  NumberText written;
  EXPECT_EQ(ReadOne("1e400", &written), HUGE_VAL);
  EXPECT_EQ(ReadOne("-1e400", &written), -HUGE_VAL);
  EXPECT_EQ(ReadOne("1e-400", &written), 0.0);
  EXPECT_EQ(ReadOne("0e99999999999", &written), 0.0);
}

TEST(JsonCursor, IntegersAndWhatIsNone) {
  const std::string text =
      "[0, -7, 12345678901, 3.0, 2e3, 3.5, null, \"4\", 1e30, [1], 9223372036854775807]";
  JsonCursor cursor(text);
  std::vector<int64_t> values;
  std::vector<OddElement> odd;
  ASSERT_TRUE(cursor.ReadIntegers(&values, &odd));
  constexpr int64_t kNo = JsonCursor::kNoInteger;
  EXPECT_EQ(values,
            (std::vector<int64_t>{0, -7, 12345678901, 3, 2000, kNo, kNo, kNo, kNo, kNo, kNo}));
  ASSERT_EQ(odd.size(), 6u);
  EXPECT_EQ(odd[0].index, 5u);
  EXPECT_EQ(text.substr(odd[0].offset, 3), "3.5");
  EXPECT_EQ(text.substr(odd[2].offset, 3), "\"4\"");
}

TEST(JsonCursor, OddElementsKeepTheirPlaces) {
  const std::string text =
      "[-1, NaN, nan, \"NaN\", null, Infinity, -Infinity, -inf, None, true, {}]";
  JsonCursor cursor(text);
  std::vector<double> values;
  NumberText written;
  std::vector<OddElement> odd;
  ASSERT_TRUE(cursor.ReadNumbers(&values, &written, &odd) && cursor.AtEnd());
  ASSERT_EQ(values.size(), 11u);
  ASSERT_EQ(odd.size(), 10u);
  for (size_t i = 1; i < values.size(); ++i) EXPECT_TRUE(std::isnan(values[i]));
  EXPECT_EQ(text.substr(odd[5].offset, 9), "-Infinity");
}

TEST(JsonCursor, FlagsOfAnySpelling) {
  const std::string text = "[0, 1,1 ,true, false, 0.0, 1.0, null]";
  JsonCursor cursor(text);
  std::vector<uint8_t> flags;
  std::vector<OddElement> odd;
  ASSERT_TRUE(cursor.ReadFlags(&flags, &odd));
  EXPECT_EQ(flags, (std::vector<uint8_t>{0, 1, 1, 1, 0, 0, 1, 0}));
  ASSERT_EQ(odd.size(), 1u);
  EXPECT_EQ(odd[0].index, 7u);
}

// Every proper beginning of a text is reported as cut, not as wrong; the failure is at its end.
TEST(JsonCursor, ABeginningIsCut) {
  const std::string text =
      R"({"a": [1.5e-3, -2, NaN, -Infinity], "b\u00e9": {"c": true, "d": null}, "e": "x\"y"})";
  ASSERT_TRUE(Accepts(text));
  for (size_t size = 0; size < text.size(); ++size) {
    const std::string part = text.substr(0, size);
    JsonCursor cursor(part);
    EXPECT_FALSE(cursor.Skip()) << part;
    EXPECT_TRUE(cursor.cut()) << part << ": " << cursor.expected();
  }
}

TEST(JsonCursor, DepthIsBounded) {
  EXPECT_TRUE(Accepts(std::string(500, '[') + std::string(500, ']')));
  const std::string deep(1 << 20, '[');
  JsonCursor cursor(deep);
  EXPECT_FALSE(cursor.Skip());
  EXPECT_STREQ(cursor.expected(), "at most 512 levels");
}

TEST(JsonCursor, StringsAreUnescapedAndUtf8) {
  std::string out;
  const std::string text = R"("aé😀\ud800\t\/")";
  JsonCursor cursor(text);
  ASSERT_TRUE(cursor.ReadString(&out));
  EXPECT_EQ(out, "a\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBD\t/");
  for (const char* bad :
       {"\"\xff\"", "\"\xC0\x80\"", "\"\xED\xA0\x80\"", "\"\xF5\x80\x80\x80\"", "\"\xE2\x82\""}) {
    JsonCursor wrong(bad);
    EXPECT_FALSE(wrong.ReadString(&out)) << bad;
  }
}

}  // namespace
}  // namespace plumbline::audit
