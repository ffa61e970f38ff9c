#include "transport/door_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/address.h"

namespace plumbline::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{1000};
constexpr size_t kEnough = 16;  // bytes that identify a protocol
// The client's preface of HTTP/2 and an empty SETTINGS frame (RFC 9113, 3.4).
constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
constexpr unsigned char kAlpn[] = {2, 'h', '2'};

// A socket with one deadline for all operations.
class Socket {
 public:
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  // Connects to the target. Returns an empty text, or the error.
  std::string Connect(const std::string& target) {
    if (IsSocketPath(target)) {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      const std::string path = target.substr(sizeof("unix:") - 1);
      if (path.size() >= sizeof(address.sun_path)) return "the path is too long";
      std::copy(path.begin(), path.end(), address.sun_path);
      return ConnectTo(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    }
    const size_t colon = target.rfind(':');
    std::string host = target.substr(0, colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    const int error = getaddrinfo(host.c_str(), target.substr(colon + 1).c_str(), &hints, &found);
    if (error != 0) return gai_strerror(error);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
    std::string why = "no address";
    for (const addrinfo* a = found; a != nullptr && !why.empty(); a = a->ai_next)
      why = ConnectTo(a->ai_family, a->ai_addr, a->ai_addrlen);
    return why;
  }

  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n > 0) {
        bytes.remove_prefix(static_cast<size_t>(n));
      } else if (errno != EINTR && (errno != EAGAIN || !Await(POLLOUT))) {
        return false;
      }
    }
    return true;
  }
  // Returns the data that arrived, at least one byte; empty at the end of the connection or at the
  // deadline.
  std::string Receive() {
    char bytes[4096];
    while (Await(POLLIN)) {
      const ssize_t n = recv(fd_, bytes, sizeof(bytes), 0);
      if (n > 0) return {bytes, static_cast<size_t>(n)};
      if (n == 0 || (errno != EINTR && errno != EAGAIN)) break;
    }
    return "";
  }

 private:
  std::string ConnectTo(int family, const sockaddr* address, socklen_t size) {
    if (fd_ >= 0) close(fd_);
    fd_ = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd_ < 0) return std::strerror(errno);
    if (connect(fd_, address, size) == 0) return "";
    if (errno != EINPROGRESS) return std::strerror(errno);
    if (!Await(POLLOUT)) return "no answer";
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length);
    return error == 0 ? "" : std::strerror(error);
  }
  bool Await(short events) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
      pollfd one{fd_, events, 0};
      const int n = poll(&one, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
      if (n >= 0 || errno != EINTR) return n > 0;
    }
  }

  const Clock::time_point deadline_ = Clock::now() + kPatience;
  int fd_ = -1;
};

bool IsHttp1(std::string_view bytes) { return bytes.substr(0, 5) == "HTTP/"; }
// Returns true for a first frame of type SETTINGS (the fourth byte).
bool IsHttp2(std::string_view bytes) {
  return bytes.size() >= 9 && bytes[0] == 0 && bytes[3] == 4 && !IsHttp1(bytes);
}
// Returns true for a record of a handshake or an alert.
bool IsTls(std::string_view bytes) {
  return bytes.size() >= 3 && (bytes[0] == 0x16 || bytes[0] == 0x15) && bytes[1] == 3;
}

std::string Answer(const std::string& target, std::string_view question) {
  Socket socket;
  std::string answer;
  if (!socket.Connect(target).empty() || !socket.Send(question)) return answer;
  while (answer.size() < kEnough) {
    const std::string more = socket.Receive();
    if (more.empty()) break;
    answer += more;
  }
  return answer;
}

int NoteRequest(SSL* ssl, X509**, EVP_PKEY**) {
  *static_cast<bool*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl))) = true;
  return 0;  // continues without a certificate
}

// Continues with any certificate; the result is judged later.
int GoOn(int, X509_STORE_CTX*) { return 1; }

struct TlsClient {
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context{SSL_CTX_new(TLS_client_method()),
                                                       SSL_CTX_free};
  std::unique_ptr<SSL, void (*)(SSL*)> ssl{nullptr, SSL_free};
  BIO* in = nullptr;  // owned by ssl
  BIO* out = nullptr;

  TlsClient(const std::string& target, const std::string& ca, bool* requires_certificate) {
    if (ca == "system") {
      SSL_CTX_set_default_verify_paths(context.get());
    } else {
      SSL_CTX_load_verify_locations(context.get(), ca.c_str(), nullptr);
    }
    SSL_CTX_set_app_data(context.get(), requires_certificate);
    SSL_CTX_set_client_cert_cb(context.get(), NoteRequest);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, GoOn);
    SSL_CTX_set_alpn_protos(context.get(), kAlpn, sizeof(kAlpn));
    ssl.reset(SSL_new(context.get()));
    SetName(target);
    in = BIO_new(BIO_s_mem());
    out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl.get(), in, out);
    SSL_set_connect_state(ssl.get());
  }

 private:
  void SetName(const std::string& target) {
    if (IsSocketPath(target)) return;
    std::string host = target.substr(0, target.rfind(':'));
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), host.c_str()) == 1) return;
    SSL_set_tlsext_host_name(ssl.get(), host.c_str());
    SSL_set1_host(ssl.get(), host.c_str());
  }
};

bool Flush(TlsClient& tls, Socket& socket) {
  char bytes[4096];
  for (int n = 0; (n = BIO_read(tls.out, bytes, sizeof(bytes))) > 0;) {
    if (!socket.Send({bytes, static_cast<size_t>(n)})) return false;
  }
  return true;
}

// Returns true if the handshake completed. `first` gets the first bytes that arrived.
bool Handshake(TlsClient& tls, Socket& socket, std::string* first) {
  for (;;) {
    const int done = SSL_do_handshake(tls.ssl.get());
    const int want = SSL_get_error(tls.ssl.get(), done);
    const bool sent = Flush(tls, socket);
    if (done == 1) return true;
    if (want != SSL_ERROR_WANT_READ || !sent) return false;
    const std::string bytes = socket.Receive();
    if (bytes.empty()) return false;
    if (first->size() < kEnough) *first += bytes;
    BIO_write(tls.in, bytes.data(), static_cast<int>(bytes.size()));
  }
}

}  // namespace

DoorProbe ProbeTls(const std::string& target, const std::string& ca) {
  DoorProbe probe;
  Socket socket;
  probe.error = socket.Connect(target);
  probe.connected = probe.error.empty();
  if (!probe.connected) return probe;
  std::string first;
  TlsClient tls(target, ca, &probe.requires_certificate);
  probe.handshake = Handshake(tls, socket, &first);
  ERR_clear_error();  // the queue belongs to the thread, and other code reads it
  probe.tls = IsTls(first);
  if (!probe.handshake) return probe;
  const unsigned char* protocol = nullptr;
  unsigned int length = 0;
  SSL_get0_alpn_selected(tls.ssl.get(), &protocol, &length);
  probe.http2 = length == 2;
  probe.http1 = !probe.http2;
  probe.verify_error = static_cast<int>(SSL_get_verify_result(tls.ssl.get()));
  probe.verify_text = X509_verify_cert_error_string(probe.verify_error);
  return probe;
}

DoorProbe ProbeClear(const std::string& target) {
  DoorProbe probe;
  {
    Socket socket;
    probe.error = socket.Connect(target);
    probe.connected = probe.error.empty();
  }
  if (!probe.connected) return probe;
  const std::string answer = Answer(target, kPreface);
  probe.http2 = IsHttp2(answer);
  probe.http1 = IsHttp1(answer);
  probe.tls = IsTls(answer);
  // A TLS server may close the connection without data, or with an alert.
  if (!probe.http2 && !probe.http1) {
    const DoorProbe encrypted = ProbeTls(target, "system");
    probe.tls = probe.tls || encrypted.tls;
    if (encrypted.handshake) probe.http1 = encrypted.http1;
  }
  if (!probe.http2 && !probe.tls) probe.http1 = IsHttp1(Answer(target, "GET / HTTP/1.0\r\n\r\n"));
  return probe;
}

}  // namespace plumbline::transport
