// Emulates the warp of the device forms: its 32 lanes run one after another.
#pragma once

namespace plumbline {

struct EmulatedWarp {
  static constexpr int kLanes = 32;
  template <typename T>
  struct Var {
    T v[kLanes]{};
    T& operator[](int lane) { return v[lane]; }
    const T& operator[](int lane) const { return v[lane]; }
  };
  template <typename F>
  static void Each(F f) {
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
  }
  static bool Any(const Var<bool>& v) {
    bool any = false;
    Each([&](int l) { any |= v[l]; });
    return any;
  }
  template <typename T>
  static Var<T> From(const Var<T>& v, int lane) {
    Var<T> out;
    Each([&](int l) { out[l] = v[lane]; });
    return out;
  }
  template <typename T>
  static Var<T> Xor(const Var<T>& v, int mask) {
    Var<T> out;
    Each([&](int l) { out[l] = v[l ^ mask]; });
    return out;
  }
};

}  // namespace plumbline
