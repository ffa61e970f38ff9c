// Writes and reads the state of an object from one description:
//
//   void Persist(Archive& a) { a.Version(1); a(count_, mean_, by_rank_); }
//
// The same lines serve both directions, so they cannot differ. Supported are numbers, enums, bool,
// strings; pair, tuple, array, C arrays; vector, deque, list; map, set and their unordered kinds;
// optional; unique_ptr and shared_ptr. If several shared_ptrs point to one object, it is written
// once, and reading creates one object again (this includes cycles). Supported is also any type
// with a member `void Persist(Archive&)` or a function `void Persist(Archive&, T&)` in the type's
// namespace or in plumbline (analysis/frame/archive_proto.h has the function for protobuf
// messages).
//
// Bytes are little-endian. Numbers have their own width, counts are u64, floating numbers are
// stored by their bits (a NaN keeps its payload), sets and maps in ascending order: equal states
// give equal bytes.
//
// Reading accepts any bytes. It never crashes and allocates in proportion to its input. After the
// first unexpected content it changes nothing more. Then error() states the content and the place,
// and the object may only be destroyed. Reading does not check that values are consistent (that an
// index lies within its vector): the owner must protect the bytes by a checksum.
//
// Not thread-safe. Another program version may read the bytes: see Version.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace plumbline {

class Archive {
 public:
  // Creates an archive that writes.
  Archive() = default;
  // Creates an archive that counts the bytes that would be written, and keeps none of them.
  struct Counting {};
  explicit Archive(Counting) : counting_(true) {}
  // Creates an archive that writes, and hands the bytes to `sink` in pieces. A piece ends where an
  // outermost section ends. The archive holds at most `piece` bytes and the largest such section.
  // Drain() hands over the remaining bytes.
  using Sink = std::function<void(std::string_view)>;
  Archive(Sink sink, size_t piece) : sink_(std::move(sink)), piece_(piece) {}
  // Creates an archive that reads `bytes`, which must outlive it.
  explicit Archive(std::string_view bytes) : reading_(true), in_(bytes), limit_(bytes.size()) {}
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  bool reading() const { return reading_; }
  bool ok() const { return error_.empty(); }
  // Returns "at byte 12 of rules/x: expected ..., found ...", or "" if there is no error.
  const std::string& error() const { return error_; }
  // Returns the bytes that were written. The archive must not be used afterwards.
  std::string Take() { return std::move(out_); }
  // Passes the remaining bytes to the sink.
  void Drain();
  // Returns the number of bytes written, or counted, so far.
  size_t written() const { return counting_ ? counted_ : handed_on_ + out_.size(); }

  // Writes the values, or overwrites them with the values that are read.
  template <typename... T>
  void operator()(T&... values) {
    (Value(values), ...);
  }

  // Writes or reads a map whose values have no default constructor: make(key) returns an empty one.
  template <typename Map, typename Make>
  void MapOf(Map& map, const Make& make);

  // Writes the version `current`, or reads and returns the version that was written. It must be at
  // most `current` (a later version is refused) and at least `oldest`.
  uint32_t Version(uint32_t current, uint32_t oldest = 1);

  // Writes or reads the data of `body` under a name and with their length. The reader must read all
  // of it and cannot read beyond it. Nests.
  template <typename Body>
  void Section(std::string_view name, const Body& body) {
    const Frame outer = BeginSection(name);
    if (ok()) body();
    EndSection(outer);
  }

  // Writes `text`, or returns the text that is read, without a copy (a view into the archive's
  // input; empty when writing or after an error).
  std::string_view Text(std::string_view text);

  // Reading: fails if there are bytes left.
  void End();
  // Reading: stops with an error, for a Persist that finds an impossible value. The first call
  // counts.
  void Fail(std::string_view expected);

 private:
  struct Frame {
    size_t begin = 0;  // writing: position of the length; reading: position of the content
    size_t limit = 0;
    size_t name = 0;  // length of the path outside of this frame
  };
  struct Known {
    const void* type;
    std::shared_ptr<void> object;
  };

  Frame BeginSection(std::string_view name);
  void EndSection(const Frame& outer);

  size_t left() const { return limit_ - at_; }
  void Bytes(void* data, size_t size) {
    if (counting_) {
      counted_ += size;
    } else if (!reading_) {
      out_.append(static_cast<const char*>(data), size);
    } else if (Has(size)) {
      std::memcpy(data, in_.data() + at_, size);
      at_ += size;
    }
  }
  // Returns true if `size` more bytes exist; otherwise fails.
  bool Has(size_t size);
  // Writes or reads the number of elements, each of at least `least` bytes.
  uint64_t Count(uint64_t size, size_t least);
  void Bool(bool& value);
  void LongDouble(long double& value);
  // Returns the place of a shared object, from 1; 0: null.
  uint64_t Place(const void* object, const void* type);

  template <typename T>
  static constexpr bool kNumber =
      std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, long double>;
  // Returns one address per type.
  template <typename T>
  static const void* TypeTag() {
    static const char tag = 0;
    return &tag;
  }

  template <typename T>
  void Value(T& value);
  void Value(std::string& value);
  void Value(std::vector<bool>& value);
  template <typename T, size_t N>
  void Value(T (&values)[N]) {
    Elements(values);
  }
  template <typename T, size_t N>
  void Value(std::array<T, N>& values) {
    Elements(values);
  }
  template <typename A, typename B>
  void Value(std::pair<A, B>& value) {
    (*this)(value.first, value.second);
  }
  template <typename... T>
  void Value(std::tuple<T...>& value) {
    std::apply([this](T&... parts) { (*this)(parts...); }, value);
  }
  template <typename T>
  void Value(std::vector<T>& values);
  template <typename T>
  void Value(std::deque<T>& values) {
    Sequence(values);
  }
  template <typename T>
  void Value(std::list<T>& values) {
    Sequence(values);
  }
  template <typename K, typename V, typename C>
  void Value(std::map<K, V, C>& map) {
    MapOf(map, [](const K&) { return V(); });
  }
  template <typename K, typename V, typename H, typename E>
  void Value(std::unordered_map<K, V, H, E>& map);
  template <typename K, typename C>
  void Value(std::set<K, C>& set);
  template <typename K, typename H, typename E>
  void Value(std::unordered_set<K, H, E>& set);
  template <typename T>
  void Value(std::optional<T>& value);
  template <typename T>
  void Value(std::unique_ptr<T>& value);
  template <typename T>
  void Value(std::shared_ptr<T>& value);

  // Sorts the keys of an unordered container.
  template <typename K>
  void AscendingKeys(std::vector<K>& keys);
  template <typename Range>
  void Elements(Range& values);
  template <typename Range>
  void Sequence(Range& values);

  bool reading_ = false, counting_ = false;
  size_t counted_ = 0;
  Sink sink_;
  size_t piece_ = 0, handed_on_ = 0;
  std::string out_;
  std::string_view in_;
  size_t at_ = 0;
  size_t limit_ = 0;
  std::string path_;  // names of the open sections
  std::string error_;
  std::map<std::pair<const void*, const void*>, uint64_t> places_;  // writing, by (object, type)
  std::vector<std::shared_ptr<const void>> alive_;  // keeps the objects alive, so that no address
                                                    // is used again
  std::vector<Known> known_;                        // reading, by place
};

static_assert(std::endian::native == std::endian::little, "numbers are stored as they lie");

template <typename T>
void Archive::Value(T& value) {
  static_assert(!std::is_pointer_v<T>, "a pointer has no meaning in another process");
  static_assert(!std::is_const_v<T>, "what is constant is not state");
  if constexpr (requires { value.Persist(*this); }) {
    if (ok()) value.Persist(*this);
  } else if constexpr (std::is_same_v<T, bool>) {
    Bool(value);
  } else if constexpr (std::is_same_v<T, long double>) {
    LongDouble(value);
  } else if constexpr (kNumber<T> || std::is_enum_v<T>) {
    Bytes(&value, sizeof(value));
  } else {
    if (ok()) Persist(*this, value);  // found in the type's namespace, or in this one
  }
}

template <typename Range>
void Archive::Elements(Range& values) {
  using T = std::remove_reference_t<decltype(values[0])>;
  if constexpr (kNumber<T>) {
    if (std::size(values) > 0) Bytes(std::data(values), std::size(values) * sizeof(T));
  } else {
    for (T& value : values) Value(value);
  }
}

template <typename T>
void Archive::Value(std::vector<T>& values) {
  if constexpr (kNumber<T>) {
    const uint64_t count = Count(values.size(), sizeof(T));
    if (reading_) values.assign(count, T());
    Elements(values);
  } else {
    Sequence(values);
  }
}

template <typename Range>
void Archive::Sequence(Range& values) {
  const uint64_t count = Count(values.size(), 1);
  if (!reading_) {
    for (auto& value : values) Value(value);
    return;
  }
  values.clear();
  for (uint64_t i = 0; i < count && ok(); ++i) Value(values.emplace_back());
}

template <typename Map, typename Make>
void Archive::MapOf(Map& map, const Make& make) {
  const uint64_t count = Count(map.size(), 1);
  if (!reading_) {
    for (auto& [key, value] : map) {
      Value(const_cast<typename Map::key_type&>(key));  // is only read
      Value(value);
    }
    return;
  }
  map.clear();
  for (uint64_t i = 0; i < count && ok(); ++i) {
    typename Map::key_type key{};
    Value(key);
    if (!ok()) return;
    if (!map.empty() && !map.key_comp()(map.rbegin()->first, key)) return Fail("an ascending key");
    auto value = make(key);
    Value(value);
    if (ok()) map.emplace_hint(map.end(), std::move(key), std::move(value));
  }
}

template <typename K, typename V, typename H, typename E>
void Archive::Value(std::unordered_map<K, V, H, E>& map) {
  std::vector<K> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  AscendingKeys(keys);
  if (reading_) map.clear();
  for (const K& key : keys) Value(map[key]);
}

template <typename K, typename C>
void Archive::Value(std::set<K, C>& set) {
  const uint64_t count = Count(set.size(), 1);
  if (!reading_) {
    for (const K& key : set) Value(const_cast<K&>(key));  // is only read
    return;
  }
  set.clear();
  for (uint64_t i = 0; i < count && ok(); ++i) {
    K key{};
    Value(key);
    if (!ok()) return;
    if (!set.empty() && !set.key_comp()(*set.rbegin(), key)) return Fail("an ascending key");
    set.emplace_hint(set.end(), std::move(key));
  }
}

template <typename K, typename H, typename E>
void Archive::Value(std::unordered_set<K, H, E>& set) {
  std::vector<K> keys(set.begin(), set.end());
  AscendingKeys(keys);
  if (!reading_) return;
  set.clear();
  set.insert(keys.begin(), keys.end());
}

template <typename K>
void Archive::AscendingKeys(std::vector<K>& keys) {
  std::sort(keys.begin(), keys.end());
  Value(keys);
  const auto not_ascending = [](const K& a, const K& b) { return !(a < b); };
  if (std::adjacent_find(keys.begin(), keys.end(), not_ascending) == keys.end()) return;
  Fail("ascending keys");
  keys.clear();
}

template <typename T>
void Archive::Value(std::optional<T>& value) {
  bool has = value.has_value();
  Bool(has);
  if (!ok()) return;
  if (reading_ && has)
    value = T{};  // clang 14 refuses emplace() for a nested struct with initialisers
  if (reading_ && !has) value.reset();
  if (has) Value(*value);
}

template <typename T>
void Archive::Value(std::unique_ptr<T>& value) {
  bool has = value != nullptr;
  Bool(has);
  if (!ok()) return;
  if (reading_) value = has ? std::make_unique<T>() : nullptr;
  if (has) Value(*value);
}

template <typename T>
void Archive::Value(std::shared_ptr<T>& value) {
  using Object = std::remove_const_t<T>;
  const void* const type = TypeTag<Object>();
  if (!reading_) {
    const size_t before = alive_.size();
    uint64_t place = Place(value.get(), type);
    Value(place);
    if (place <= before) return;  // null, or written already
    alive_.push_back(value);
    Value(const_cast<Object&>(*value));  // is only read
    return;
  }
  uint64_t place = 0;
  Value(place);
  if (!ok()) return;
  if (place > known_.size() + 1) return Fail("an object seen before, or the next one");
  if (place == 0) {
    value.reset();
  } else if (place == known_.size() + 1) {
    auto fresh = std::make_shared<Object>();
    known_.push_back({type, fresh});
    value = fresh;
    Value(*fresh);
  } else if (known_[place - 1].type != type) {
    Fail("an object of this type");
  } else {
    value = std::static_pointer_cast<Object>(known_[place - 1].object);
  }
}

}  // namespace plumbline
