// The steps of a series in the order of the file. Steps are nearly always equidistant. Then stores
// only the first one and the distance, which halves the memory of a series.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace plumbline::audit {

// Two lists with equal steps compare equal, because equidistant steps are never stored
// individually. Not thread-safe.
class StepList {
 public:
  class Iterator {
   public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = int64_t;
    using difference_type = std::ptrdiff_t;
    using pointer = const int64_t*;
    using reference = int64_t;

    Iterator() = default;
    Iterator(const StepList* list, difference_type at) : list_(list), at_(at) {}
    int64_t operator*() const { return (*list_)[static_cast<size_t>(at_)]; }
    int64_t operator[](difference_type by) const { return *(*this + by); }
    Iterator& operator+=(difference_type by) { return at_ += by, *this; }
    Iterator& operator-=(difference_type by) { return at_ -= by, *this; }
    Iterator& operator++() { return *this += 1; }
    Iterator& operator--() { return *this -= 1; }
    Iterator operator++(int) { return {list_, at_++}; }
    Iterator operator--(int) { return {list_, at_--}; }
    friend Iterator operator+(Iterator it, difference_type by) { return it += by; }
    friend Iterator operator+(difference_type by, Iterator it) { return it += by; }
    friend Iterator operator-(Iterator it, difference_type by) { return it -= by; }
    friend difference_type operator-(const Iterator& a, const Iterator& b) { return a.at_ - b.at_; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }
    friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.at_ <=> b.at_; }

   private:
    const StepList* list_ = nullptr;
    difference_type at_ = 0;
  };

  void push_back(int64_t step) {
    if (listed_.empty() && (size_ < 2 ? Begin(step) : static_cast<uint64_t>(step) == At(size_))) {
      ++size_;
      return;
    }
    PushListed(step);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t operator[](size_t i) const {
    return listed_.empty() ? static_cast<int64_t>(At(i)) : listed_[i];
  }
  int64_t front() const { return (*this)[0]; }
  int64_t back() const { return (*this)[size_ - 1]; }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, static_cast<std::ptrdiff_t>(size_)}; }

  friend bool operator==(const StepList& a, const StepList& b) {
    return a.size_ == b.size_ && a.first_ == b.first_ && a.apart_ == b.apart_ &&
           a.listed_ == b.listed_;
  }
  template <typename Hash>
  friend Hash AbslHashValue(Hash hash, const StepList& list) {
    return Hash::combine(std::move(hash), list.size_, list.first_, list.apart_, list.listed_);
  }

 private:
  // Unsigned, because a file may contain any step.
  uint64_t At(size_t i) const { return first_ + apart_ * i; }
  bool Begin(int64_t step) {
    if (size_ == 0) first_ = static_cast<uint64_t>(step);
    if (size_ == 1) apart_ = static_cast<uint64_t>(step) - first_;
    return true;
  }
  // Adds a step that is not equidistant: from here on all steps are stored individually.
  [[gnu::noinline]] void PushListed(int64_t step) {
    if (listed_.empty()) {
      listed_.reserve(2 * size_);
      for (size_t i = 0; i < size_; ++i) listed_.push_back(static_cast<int64_t>(At(i)));
      first_ = apart_ = 0;
    }
    listed_.push_back(step);
    ++size_;
  }

  size_t size_ = 0;
  uint64_t first_ = 0, apart_ = 0;  // 0 if steps are listed
  std::vector<int64_t> listed_;     // all steps if they are not equidistant, else empty
};

}  // namespace plumbline::audit
