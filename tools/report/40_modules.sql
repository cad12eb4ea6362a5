--@ modules: Modules
--? SELECT EXISTS (SELECT 1 FROM torch_modules)
--! No module was called: they are PyTorch's (torch.nn.Module).
SELECT printf('%s (%s) takes most of its own: %.3g s forward and backward, of all ranks', module, type, sum(self_seconds)) AS answer
FROM torch_modules GROUP BY module, type ORDER BY sum(self_seconds) DESC LIMIT 1;
--= rows: Time of modules
SELECT module, type, sum(CASE WHEN stage = 'forward' THEN seconds END) AS forward_s, sum(CASE WHEN stage = 'backward' THEN seconds END) AS backward_s,
  sum(self_seconds) AS self_s, sum(calls) AS calls, sum(cuda_mean * cuda_calls) AS gpu_s, nullif(sum(cuda_calls), 0) AS gpu_calls
FROM torch_modules GROUP BY module, type ORDER BY sum(seconds) DESC;
