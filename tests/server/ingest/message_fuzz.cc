#include "tests/server/ingest/message_fuzz.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

namespace plumbline::test {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

template <typename T>
T OddInteger(std::mt19937& random) {
  using Limits = std::numeric_limits<T>;
  const T odd[] = {0,
                   1,
                   2,
                   3,
                   7,
                   static_cast<T>(-1),
                   Limits::max(),
                   Limits::min(),
                   static_cast<T>(Limits::max() - 1),
                   static_cast<T>(Limits::max() / 2 + 1),
                   static_cast<T>(1u << 17),
                   static_cast<T>(random()),
                   static_cast<T>(random() % 100)};
  return odd[random() % std::size(odd)];
}

double OddNumber(std::mt19937& random) {
  using Limits = std::numeric_limits<double>;
  const double odd[] = {0.0,
                        -0.0,
                        1.0,
                        -1.0,
                        Limits::max(),
                        Limits::lowest(),
                        Limits::min(),
                        Limits::denorm_min(),
                        Limits::infinity(),
                        -Limits::infinity(),
                        Limits::quiet_NaN(),
                        static_cast<double>(random()) / 1e3};
  return odd[random() % std::size(odd)];
}

std::string OddText(std::mt19937& random) {
  static const std::string odd[] = {"",
                                    "x",
                                    "loss",
                                    "*",
                                    "fuzz",
                                    "causality/*",
                                    "[[[",
                                    "\\",
                                    std::string(1, '\0'),
                                    "\x1b[2J\x1b]52;c;eA==\x07",
                                    "\xe2\x80\xae",
                                    std::string(511, 'n'),
                                    std::string(5000, '*'),
                                    "a/b/c/../../../etc/passwd",
                                    "%s%n%s%n"};
  return odd[random() % std::size(odd)];
}

std::string OddBytes(std::mt19937& random) {
  std::string bytes(random() % 65, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

// Sets one value. If the field is repeated, adds another element.
void SetValue(Message* message, const FieldDescriptor& field, std::mt19937& random, int depth) {
  const Reflection& r = *message->GetReflection();
  const bool many = field.is_repeated();
  switch (field.cpp_type()) {
#define PLUMB_SCALAR(TYPE, NAME, VALUE)                                               \
  case FieldDescriptor::CPPTYPE_##TYPE: {                                             \
    const auto value = VALUE;                                                         \
    many ? r.Add##NAME(message, &field, value) : r.Set##NAME(message, &field, value); \
    break;                                                                            \
  }
    PLUMB_SCALAR(INT32, Int32, OddInteger<int32_t>(random))
    PLUMB_SCALAR(INT64, Int64, OddInteger<int64_t>(random))
    PLUMB_SCALAR(UINT32, UInt32, OddInteger<uint32_t>(random))
    PLUMB_SCALAR(UINT64, UInt64, OddInteger<uint64_t>(random))
    PLUMB_SCALAR(DOUBLE, Double, OddNumber(random))
    PLUMB_SCALAR(FLOAT, Float, static_cast<float>(OddNumber(random)))
    PLUMB_SCALAR(BOOL, Bool, random() % 2 == 0)
    PLUMB_SCALAR(ENUM, EnumValue, OddInteger<int>(random))
    PLUMB_SCALAR(STRING, String,
                 field.type() == FieldDescriptor::TYPE_BYTES ? OddBytes(random) : OddText(random))
#undef PLUMB_SCALAR
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      Message* inner = many ? r.AddMessage(message, &field) : r.MutableMessage(message, &field);
      FillByChance(inner, random, depth - 1);
      break;
    }
  }
}

void Collect(Message* message, std::vector<Message*>* all) {
  all->push_back(message);
  const Reflection& r = *message->GetReflection();
  std::vector<const FieldDescriptor*> set;
  r.ListFields(*message, &set);
  for (const FieldDescriptor* field : set) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    const int n = field->is_repeated() ? r.FieldSize(*message, field) : 1;
    for (int i = 0; i < n; ++i) {
      Collect(field->is_repeated() ? r.MutableRepeatedMessage(message, field, i)
                                   : r.MutableMessage(message, field),
              all);
    }
  }
}

void DamageOne(Message* message, std::mt19937& random) {
  const auto& type = *message->GetDescriptor();
  if (type.field_count() == 0) return;
  const Reflection& r = *message->GetReflection();
  const FieldDescriptor& field =
      *type.field(static_cast<int>(random() % static_cast<uint32_t>(type.field_count())));
  if (field.is_map()) return;
  const bool many = field.is_repeated();
  const int size = many ? r.FieldSize(*message, &field) : 0;
  switch (random() % 5) {
    case 0:
      r.ClearField(message, &field);
      break;
    case 1:
      if (size > 0) r.RemoveLast(message, &field);
      break;
    case 2:  // many of them
      for (uint32_t i = 0, n = many ? random() % 100 : 1; i < n; ++i) {
        SetValue(message, field, random, 2);
      }
      break;
    default:
      SetValue(message, field, random, 3);
  }
}

}  // namespace

void FillByChance(Message* message, std::mt19937& random, int depth) {
  const auto& type = *message->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const bool message_field = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (field.is_map() || random() % 3 == 0 || (message_field && depth <= 0)) continue;
    const uint32_t n = field.is_repeated() ? random() % 4 : 1;
    for (uint32_t k = 0; k < n; ++k) SetValue(message, field, random, depth);
  }
}

void DamageFields(Message* message, std::mt19937& random) {
  for (uint32_t i = 0, n = 1 + random() % 8; i < n; ++i) {
    std::vector<Message*> all;
    Collect(message, &all);
    DamageOne(all[random() % all.size()], random);
  }
}

std::string DamageBytes(std::string bytes, std::mt19937& random) {
  const auto at = [&] { return bytes.empty() ? 0 : random() % bytes.size(); };
  const int edits = 1 + static_cast<int>(random() % 8);
  for (int i = 0; i < edits; ++i) {
    switch (random() % 5) {
      case 0:
        if (!bytes.empty()) bytes[at()] = static_cast<char>(random());
        break;
      case 1:
        if (!bytes.empty()) bytes[at()] ^= static_cast<char>(1u << random() % 8);
        break;
      case 2:
        bytes.resize(at());
        break;
      case 3:
        bytes.insert(at(), std::string(1 + random() % 16, static_cast<char>(random())));
        break;
      case 4: {
        const size_t from = at();
        bytes.insert(at(), bytes.substr(from, random() % 64));
        break;
      }
    }
  }
  return bytes;
}

int Rounds(int often, int in_long_runs) {
  return std::getenv("PLUMB_LONG") != nullptr ? in_long_runs : often;
}

}  // namespace plumbline::test
