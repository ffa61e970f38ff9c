#include "audit/plan/quantity.h"

#include <gtest/gtest.h>

namespace plumbline::audit {
namespace {

TEST(Quantity, AsPeopleWriteThem) {
  EXPECT_EQ(ReadQuantity("100B").value(), 100e9);
  EXPECT_EQ(ReadQuantity("4m").value(), 4e6);
  EXPECT_EQ(ReadQuantity("1.5T").value(), 1.5e12);
  EXPECT_EQ(ReadQuantity("989e12").value(), 989e12);
  EXPECT_EQ(ReadQuantity("64").value(), 64);
}

TEST(Quantity, AnythingElseIsRefused) {
  for (const char* text :
       {"", "B", "nan", "inf", "-1", "0x10", "1e999", "4MB", "4 M", "1.2.3", "1e"})
    EXPECT_FALSE(ReadQuantity(text).ok()) << text;
}

TEST(Quantity, ThreeDigitsAndASuffix) {
  EXPECT_EQ(QuantityText(100e9), "100 B");
  EXPECT_EQ(QuantityText(4194304), "4.19 M");
  EXPECT_EQ(QuantityText(989), "989");
  EXPECT_EQ(QuantityText(999.6), "1 K");
  EXPECT_EQ(QuantityText(999600), "1 M");
  EXPECT_EQ(QuantityText(0), "0");
  EXPECT_EQ(BytesText(1.6e12), "1.6 TB");
  EXPECT_EQ(SecondsText(0.0123), "12.3 ms");
}

}  // namespace
}  // namespace plumbline::audit
