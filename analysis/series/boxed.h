// A std::optional whose value lies on the heap: what an object seldom has costs it a pointer.
#pragma once

#include <memory>
#include <utility>

#include "base/archive.h"

namespace plumbline::rules {

// Copies copy the value. Written and read as a std::optional is. Not thread-safe.
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

}  // namespace plumbline::rules
