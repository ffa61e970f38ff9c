// Numbers that a router may have stored instead of looking at its batch. A leaking policy fits one
// number to each full expert of a pool: the bar that its last admission reaches, how many it keeps.
// In one pool a stored number leaves the same; a pool that would need another one excludes it.
// Decision 0053.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/archive.h"

namespace plumbline::rules {

// What one table of numbers, one an entry, would have to hold. Entries are experts, or experts by
// choice rank.
class StoredNumbers {
 public:
  StoredNumbers() = default;
  // `what`: what the numbers are; tables of one name can be compared.
  StoredNumbers(std::string what, size_t entries)
      : what_(std::move(what)), least_(entries, -HUGE_VAL), most_(entries, HUGE_VAL) {}

  const std::string& what() const { return what_; }
  void AtLeast(size_t entry, double number) { least_[entry] = std::max(least_[entry], number); }
  void AtMost(size_t entry, double number) { most_[entry] = std::min(most_[entry], number); }
  // Some number would have to be two: no such table was stored.
  bool excluded() const;
  // What both ask for. Tables of another size exclude each other.
  void Join(const StoredNumbers& other);
  void Persist(Archive& archive) { archive(what_, least_, most_); }

 private:
  std::string what_;
  std::vector<double> least_, most_;
};

// The tables that give every call taken so far.
class StoredRules {
 public:
  // One more call and the tables that give it, several where several policies replay it. A call
  // without any says nothing.
  void Take(const std::vector<StoredNumbers>& call);
  // No table is left that gives all calls.
  bool excluded() const { return any_ && left_.empty(); }
  void Persist(Archive& archive) { archive(any_, left_); }

 private:
  bool any_ = false;
  std::vector<StoredNumbers> left_;
};

}  // namespace plumbline::rules
