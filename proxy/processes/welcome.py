"""What a new user needs once the proxy runs."""

from proxy.processes.lifetime import Ports
from proxy.settings.config import Config


def welcome(config: Config, ports: Ports, models: tuple[str, ...]) -> str:
    """Where it answers, and a first request to paste."""
    data_urls = [one.url(tls=config.tls is not None) for one in ports.data]
    admin_url = ports.admin.url(tls=config.admin.tls is not None)
    more = "".join(f"\nAlso on {url}/v1." for url in data_urls[1:])
    model = models[0] if models else "MODEL"
    takes_any = config.tenants is None or config.tenants.anonymous
    key = "any" if takes_any else "A KEY OF `tenants.keys`"
    question = '[{"role": "user", "content": "Why is the sky blue?"}]'
    return f"""
Rejoinder answers on {data_urls[0]}/v1 (admin: {admin_url}). Try it:

  from openai import OpenAI
  chat = OpenAI(base_url="{data_urls[0]}/v1", api_key="{key}").chat.completions
  print(chat.create(model="{model}", messages={question}, temperature=0, max_tokens=48)\
.choices[0].message.content)
{more}"""
