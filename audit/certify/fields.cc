#include "audit/certify/fields.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plumbline::audit {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr char kElsewhere[] = "other elements were sampled";
constexpr char kOneSide[] = "measured on one side only";

// Reads a number of one message: a single field, or number `i` of a repeated one.
struct NumberReader {
  const Message& message;
  const FieldDescriptor* field;
  int i;

  template <typename T>
  BitValue Read(DType dtype, T (Reflection::*single)(const Message&, const FieldDescriptor*) const,
                T (Reflection::*repeated)(const Message&, const FieldDescriptor*, int)
                    const) const {
    const Reflection& reflection = *message.GetReflection();
    const T value = field->is_repeated() ? (reflection.*repeated)(message, field, i)
                                         : (reflection.*single)(message, field);
    return BitValueAt(&value, dtype, 0);
  }
};

// Returns a number of the message; for repeated fields, number `i`.
BitValue NumberAt(const Message& message, const FieldDescriptor* field, int i) {
  using R = Reflection;
  const NumberReader number{message, field, i};
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return number.Read(DType::kI32, &R::GetInt32, &R::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return number.Read(DType::kI64, &R::GetInt64, &R::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return number.Read(DType::kU32, &R::GetUInt32, &R::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return number.Read(DType::kU64, &R::GetUInt64, &R::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return number.Read(DType::kF32, &R::GetFloat, &R::GetRepeatedFloat);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return number.Read(DType::kF64, &R::GetDouble, &R::GetRepeatedDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return number.Read(DType::kBool, &R::GetBool, &R::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_ENUM:
      return number.Read(DType::kI32, &R::GetEnumValue, &R::GetRepeatedEnumValue);
    default:
      return {};
  }
}

// Two samples with unequal `offsets` hold other elements of the tensor.
bool SampledElsewhere(const Message& a, const Message& b) {
  const FieldDescriptor* field = a.GetDescriptor()->FindFieldByName("offsets");
  if (field == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return false;
  return a.GetReflection()->GetMessage(a, field).SerializeAsString() !=
         b.GetReflection()->GetMessage(b, field).SerializeAsString();
}

// Walks two messages of one type, field by field in the order of their numbers. Numbers are
// compared by bits, texts go to the environments: they name what differs, and differ from no value.
class FieldWalk {
 public:
  FieldWalk(Tally* tally, Environment* a, Environment* b) : tally_(*tally), a_(*a), b_(*b) {}

  void Messages(const std::string& kind, const BitPlace& place, const Message& a,
                const Message& b) {
    if (a.GetDescriptor() == v1::Tensor::descriptor()) {
      return CompareTensors(kind, place, static_cast<const v1::Tensor&>(a),
                            static_cast<const v1::Tensor&>(b), &tally_);
    }
    if (SampledElsewhere(a, b)) return tally_.Gap(kind, kElsewhere, 1, false);
    for (int i = 0; i < a.GetDescriptor()->field_count(); ++i)
      Field(kind, place, a, b, a.GetDescriptor()->field(i));
  }

 private:
  // Digests and rows of the vocabulary are counted as kinds of their own.
  static std::string KindOf(const std::string& kind, const FieldDescriptor* field) {
    if (field->name() == "digest_low" || field->name() == "digest_high") return "digests";
    return field->message_type() == v1::LogitsWitness::descriptor() ? "vocabulary" : kind;
  }

  void Field(const std::string& outer, const BitPlace& outside, const Message& a, const Message& b,
             const FieldDescriptor* field) {
    const Reflection &ra = *a.GetReflection(), &rb = *b.GetReflection();
    const std::string kind = KindOf(outer, field);
    BitPlace place = outside;
    absl::StrAppend(&place.field, place.field.empty() ? "" : ".", std::string(field->name()));
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) return Words(place, a, b, field);
    if (field->is_repeated()) return Repeated(kind, place, a, b, field);
    if (field->has_presence()) {
      const bool of_a = ra.HasField(a, field), of_b = rb.HasField(b, field);
      if (of_a != of_b) return tally_.Gap(kind, kOneSide, 1, false);
      if (!of_a) return;
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
      return Messages(kind, place, ra.GetMessage(a, field), rb.GetMessage(b, field));
    tally_.Take(kind, place, NumberAt(a, field, 0), NumberAt(b, field, 0));
  }

  // Lists of unequal length differ as a whole: their elements have no counterparts.
  void Repeated(const std::string& kind, BitPlace place, const Message& a, const Message& b,
                const FieldDescriptor* field) {
    const Reflection &ra = *a.GetReflection(), &rb = *b.GetReflection();
    const int size = ra.FieldSize(a, field), other = rb.FieldSize(b, field);
    if (size != other)
      return tally_.Other(kind, place, absl::StrCat(size, " values"),
                          absl::StrCat(other, " values"));
    for (int i = 0; i < size; ++i) {
      place.element = i;
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        Messages(kind, place, ra.GetRepeatedMessage(a, field, i),
                 rb.GetRepeatedMessage(b, field, i));
      } else {
        tally_.Take(kind, place, NumberAt(a, field, i), NumberAt(b, field, i));
      }
    }
  }

  // At most kMostNames texts that differ are kept.
  void Words(const BitPlace& place, const Message& a, const Message& b,
             const FieldDescriptor* field) {
    if (field->is_repeated() || field->type() == FieldDescriptor::TYPE_BYTES) return;
    std::string of_a = a.GetReflection()->GetString(a, field);
    std::string of_b = b.GetReflection()->GetString(b, field);
    if (of_a == of_b) return;
    const std::string name = absl::StrCat(place.site, " ", place.field);
    if (a_.size() >= kMostNames && !a_.contains(name)) return;
    a_[name].insert(std::move(of_a));
    b_[name].insert(std::move(of_b));
  }

  static constexpr size_t kMostNames = 4096;
  Tally& tally_;
  Environment &a_, &b_;
};

}  // namespace

void CompareTensors(const std::string& kind, const BitPlace& place, const v1::Tensor& a,
                    const v1::Tensor& b, Tally* tally) {
  const auto text = [](const v1::Tensor& tensor) {
    return absl::StrCat(DTypeName(static_cast<DType>(tensor.dtype())), " [",
                        absl::StrJoin(tensor.shape(), ", "), "]");
  };
  const auto dtype = static_cast<DType>(a.dtype());
  const size_t width = DTypeSize(dtype);
  const bool alike = text(a) == text(b) && a.data().size() == b.data().size();
  if (!alike || (width == 0 && a.data() != b.data()))
    return tally->Other(kind, place, text(a), text(b));
  const size_t count = width == 0 ? 0 : a.data().size() / width;
  if (a.data() == b.data()) return tally->Equal(kind, count);
  BitPlace at = place;
  for (size_t i = 0; i < count; ++i) {
    at.element = static_cast<int64_t>(i);
    tally->Take(kind, at, BitValueAt(a.data().data(), dtype, i),
                BitValueAt(b.data().data(), dtype, i));
  }
}

void CompareFields(const std::string& kind, const BitPlace& place, const Message& a,
                   const Message& b, Tally* tally, Environment* of_a, Environment* of_b) {
  FieldWalk(tally, of_a, of_b).Messages(kind, place, a, b);
}

}  // namespace plumbline::audit
