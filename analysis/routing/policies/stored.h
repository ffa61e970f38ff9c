// Numbers that a router may have stored instead of reading its batch. A leaking policy fits one
// number to each full expert of a pool: the bar that its last admission reaches, or how many it
// keeps. In one pool, a stored number gives the same result. If another pool needs a different
// number, the stored table is excluded. Decision 0053.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/archive.h"

namespace plumbline::analysis {

// The bounds on one table of numbers, one per entry. Entries are experts, or experts by choice
// rank.
class StoredNumbers {
 public:
  StoredNumbers() = default;
  // `what` names the kind of numbers. Tables of one name can be compared.
  StoredNumbers(std::string what, size_t entries)
      : what_(std::move(what)), least_(entries, -HUGE_VAL), most_(entries, HUGE_VAL) {}

  const std::string& what() const { return what_; }
  void AtLeast(size_t entry, double number) { least_[entry] = std::max(least_[entry], number); }
  void AtMost(size_t entry, double number) { most_[entry] = std::min(most_[entry], number); }
  // True if one entry would need two different values: no such table was stored.
  bool excluded() const;
  // Intersects the bounds. Tables of different sizes exclude each other.
  void Join(const StoredNumbers& other);
  void Persist(Archive& archive) { archive(what_, least_, most_); }

 private:
  std::string what_;
  std::vector<double> least_, most_;
};

// The tables that explain all calls taken so far.
class StoredRules {
 public:
  // Takes one more call and the tables that explain it. There are several if several policies
  // replay it. A call without tables is ignored.
  void Take(const std::vector<StoredNumbers>& call);
  // True if no table explains all calls.
  bool excluded() const { return any_ && left_.empty(); }
  void Persist(Archive& archive) { archive(any_, left_); }

 private:
  bool any_ = false;
  std::vector<StoredNumbers> left_;
};

}  // namespace plumbline::analysis
