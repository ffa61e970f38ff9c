// A std::optional whose value is on the heap. If a member is rarely set, it costs a pointer only.
#pragma once

#include <memory>
#include <utility>

#include "base/archive.h"

namespace plumbline::analysis {

// A copy copies the value. Persist uses the format of a std::optional. Not thread-safe.
template <typename T>
class Boxed {
 public:
  Boxed() = default;
  Boxed(const Boxed& other) : value_(other ? std::make_unique<T>(*other) : nullptr) {}
  Boxed(Boxed&&) noexcept = default;
  Boxed& operator=(const Boxed& other) {
    if (this != &other) value_ = other ? std::make_unique<T>(*other) : nullptr;
    return *this;
  }
  Boxed& operator=(Boxed&&) noexcept = default;
  ~Boxed() = default;

  explicit operator bool() const { return value_ != nullptr; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return value_.get(); }
  const T* operator->() const { return value_.get(); }

  T& Set(T value = T()) {
    value_ = std::make_unique<T>(std::move(value));
    return *value_;
  }
  void Reset() { value_.reset(); }

  void Persist(Archive& a) { a(value_); }

 private:
  std::unique_ptr<T> value_;
};

}  // namespace plumbline::analysis
