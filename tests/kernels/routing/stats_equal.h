// Compares two measurements of a router's call bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/routing/routing.h"

namespace plumbline {

inline bool SameBits(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

inline void ExpectSame(const RoutingPoolStats& got, const RoutingPoolStats& want) {
  EXPECT_EQ(got.measured, want.measured);
  EXPECT_EQ(got.pools, want.pools);
  EXPECT_EQ(got.refusing_cells, want.refusing_cells);
  EXPECT_EQ(got.separable_cells, want.separable_cells);
  EXPECT_EQ(got.most_held, want.most_held);
  EXPECT_EQ(got.least_held_refusing, want.least_held_refusing);
  EXPECT_EQ(got.most_held_refusing, want.most_held_refusing);
  EXPECT_EQ(got.order_measured, want.order_measured);
  EXPECT_EQ(got.inverted_cells, want.inverted_cells);
  EXPECT_EQ(got.refused_row, want.refused_row);
  EXPECT_EQ(got.admitted_row, want.admitted_row);
  EXPECT_EQ(got.expert, want.expert);
}

inline void ExpectSame(const RoutingStats& got, const RoutingStats& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.padding, want.padding);
  EXPECT_EQ(got.tied, want.tied);
  EXPECT_EQ(got.non_finite, want.non_finite);
  EXPECT_EQ(got.unexplained, want.unexplained);
  EXPECT_EQ(got.choices, want.choices);
  EXPECT_EQ(got.dropped, want.dropped);
  EXPECT_EQ(got.load, want.load);
  EXPECT_EQ(got.refused, want.refused);
  EXPECT_EQ(got.drop_histogram, want.drop_histogram);
  EXPECT_EQ(got.offered_histogram, want.offered_histogram);
  ExpectSame(got.pools, want.pools);
  EXPECT_TRUE(SameBits(got.entropy_mean, want.entropy_mean))
      << got.entropy_mean << " " << want.entropy_mean;
  EXPECT_TRUE(SameBits(got.margin_mean, want.margin_mean));
  EXPECT_TRUE(SameBits(got.z_mean, want.z_mean));
  EXPECT_TRUE(SameBits(got.logit_abs_max, want.logit_abs_max));
}

}  // namespace plumbline
