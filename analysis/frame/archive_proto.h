// Stores Protobuf messages as part of an object's state (base/archive.h). Equal messages give equal
// bytes: map fields are written in order.
#pragma once

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message_lite.h>

#include <concepts>
#include <string>

#include "base/archive.h"

namespace plumbline {

template <typename Message>
requires std::derived_from<Message, google::protobuf::MessageLite>
void Persist(Archive& archive, Message& message) {
  if (archive.reading()) {
    const std::string_view bytes = archive.Text({});
    if (archive.ok() && !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      archive.Fail(std::string("a ") + message.GetTypeName());
    return;
  }
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializePartialToCodedStream(&coded);
  }
  archive.Text(bytes);
}

}  // namespace plumbline
