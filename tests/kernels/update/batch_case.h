// Updates of every dtype, size and layout, for tests that check many at once.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/update/batch.h"
#include "tests/kernels/device/values_case.h"

namespace plumbline {

class UpdateBatchCase {
 public:
  explicit UpdateBatchCase(uint64_t seed) {
    constexpr DType kIntended[] = {DType::kF32, DType::kF64, DType::kBF16};
    ValuesMaker maker(seed);
    int layout = 0;
    for (const DType t : kFloatingTypes) {
      for (const Kind kind : {Kind::kNormal, Kind::kFinite, Kind::kBits}) {
        for (const int64_t n : {0, 1, 33, 4095, 4097, 10000}) {
          layout += layout % 6 == 0 ? 2 : 1;  // the device's data is aligned
          const DType d = kIntended[layout % 3];
          Add(Lay(t, maker.Make(t, kind, n), layout), Lay(t, maker.Make(t, kind, n), layout),
              Lay(d, maker.Make(d, kind, n), layout));
        }
      }
    }
    Add(Lay(DType::kBF16, maker.Make(DType::kBF16, Kind::kNormal, 100001), 0),
        Lay(DType::kBF16, maker.Make(DType::kBF16, Kind::kNormal, 100001), 3),
        Lay(DType::kF32, maker.Make(DType::kF32, Kind::kNormal, 100001), 4));
    for (size_t i = 0; i < cases_.size(); i += 3) {
      updates_.push_back({cases_[i].view, cases_[i + 1].view, cases_[i + 2].view});
    }
  }

  const std::vector<ValuesCase>& cases() const { return cases_; }  // three for each update
  const std::vector<UpdateViews>& updates() const { return updates_; }

  void ExpectCpuReferences(const std::vector<UpdateStats>& device) const {
    ASSERT_EQ(device.size(), updates_.size());
    for (size_t i = 0; i < device.size(); ++i) {
      const UpdateViews& u = updates_[i];
      UpdateStats host;
      ASSERT_TRUE(CheckUpdate(u.before, u.after, u.intended, &host).ok());
      SCOPED_TRACE(testing::Message() << "update " << i << " of " << DTypeName(u.before.dtype));
      ExpectEqual(device[i], host);
    }
  }

 private:
  void Add(ValuesCase before, ValuesCase after, ValuesCase intended) {
    cases_.push_back(std::move(before));
    cases_.push_back(std::move(after));
    cases_.push_back(std::move(intended));
  }

  // Compares bits, except the payload of a NaN.
  static void ExpectEqual(const UpdateStats& a, const UpdateStats& b) {
    EXPECT_EQ(a.count, b.count);
    EXPECT_EQ(a.non_finite, b.non_finite);
    EXPECT_EQ(a.intended, b.intended);
    EXPECT_EQ(a.lost, b.lost);
    EXPECT_EQ(a.moved_against, b.moved_against);
    EXPECT_EQ(a.misrounded, b.misrounded);
    const double sums[][2] = {{a.intended_l1, b.intended_l1},
                              {a.applied_l1, b.applied_l1},
                              {a.lost_l1, b.lost_l1},
                              {a.applied_along, b.applied_along},
                              {a.error_sum, b.error_sum}};
    for (const auto& [x, y] : sums) {
      EXPECT_TRUE((x != x && y != y) || std::memcmp(&x, &y, sizeof(x)) == 0) << x << " " << y;
    }
  }

  std::vector<ValuesCase> cases_;
  std::vector<UpdateViews> updates_;
};

}  // namespace plumbline
